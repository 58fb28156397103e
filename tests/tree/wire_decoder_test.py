"""Runs the chunks that emit_chunks writes through the second decoder and encoder: every bit must agree."""

import os
import struct
import subprocess
import sys

from wire_decoder import decode, load, store
from wire_encoder import encode
from wire_packing import Damaged


def parts(stream):
    while head := stream.read(8):
        yield stream.read(struct.unpack("<Q", head)[0])


def plain_values(data, kind, out):
    """Values that travel as they are: converted to the tensor's type, or kept bit for bit."""
    return data if kind == out else store(load(data, kind), out)


def check(kind, clip, data, chunk, decoded):
    got = decode(chunk)
    if got.values != decoded:
        return "decoded values differ"
    if encode(got.header, load(data, kind), plain_values(data, kind, got.header.type), clip / 1000) != got.unpacked:
        return "encoded bytes differ"
    return None


def refuses(chunk):
    try:
        decode(chunk)
        return False
    except Damaged:
        return True


def main():
    emitter = subprocess.Popen([sys.argv[1]], stdout=subprocess.PIPE)
    stream = parts(emitter.stdout)
    cases = failures = 0
    for kind, data, chunk, decoded in zip(stream, stream, stream, stream):
        kind, clip = struct.unpack("<II", kind)
        problem = check(kind, clip, data, chunk, decoded)
        if cases % 97 == 0 and not (refuses(chunk[:-1]) and refuses(chunk + b"\0")):
            problem = "a wrong length is accepted"
        cases += 1
        if problem:
            failures += 1
            if failures <= 10:
                print(f"input type {kind}: {problem}; header {decode(chunk).header}")
    status = emitter.wait()
    print(f"{cases} chunks, {failures} failures")
    return 1 if failures or status or cases < (10000 if "QTEST_FULL" in os.environ else 700) else 0


if __name__ == "__main__":
    sys.exit(main())
