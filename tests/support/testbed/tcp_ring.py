"""A rank of a ring of TCP streams that all flow at once, each rank sending to the next: what the links carry without any
library. Started as a rank of a job; prints {"received_bytes", "seconds"}.

usage: tcp_ring.py ADDRESS... [--seconds S] [--warm-up S]    one address for each rank
"""
import argparse
import json
import os
import socket
import threading
import time

BLOCK = 1 << 20
PORT = 29600
PATIENCE = 30  # seconds, for the other ranks to come


def connect(address):
    end = time.monotonic() + PATIENCE
    while True:
        try:
            return socket.create_connection((address, PORT), timeout=PATIENCE)
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.05)


def send_for_ever(connection):
    block = bytes(BLOCK)
    try:
        while True:
            connection.sendall(block)
    except OSError:
        pass  # the receiver has seen enough


def receive(connection, seconds):
    """Bytes that came within `seconds`, and how long that took."""
    buffer = bytearray(BLOCK)
    begin = now = time.monotonic()
    count = 0
    while now < begin + seconds:
        got = connection.recv_into(buffer)
        if got == 0:
            break
        count += got
        now = time.monotonic()
    return count, now - begin


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("addresses", nargs="+")
    parser.add_argument("--seconds", type=float, default=2)
    parser.add_argument("--warm-up", type=float, default=0.5)
    chosen = parser.parse_args()
    rank = int(os.environ["RANK"])
    with socket.create_server((chosen.addresses[rank], PORT)) as server:
        forward = connect(chosen.addresses[(rank + 1) % len(chosen.addresses)])
        server.settimeout(PATIENCE)
        backward, _ = server.accept()
    backward.settimeout(PATIENCE)
    threading.Thread(target=send_for_ever, args=(forward,), daemon=True).start()
    receive(backward, chosen.warm_up)
    count, seconds = receive(backward, chosen.seconds)
    # A rank that is done first goes on receiving, so that the links stay full for the others.
    receive(backward, chosen.warm_up)
    print(json.dumps({"received_bytes": count, "seconds": seconds}), flush=True)
    os._exit(0)  # the sending thread does not end


main()
