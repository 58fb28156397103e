"""The processes of one command on the hosts of a testbed, each started as a launcher starts a rank."""
import collections
import contextlib
import pathlib
import signal
import subprocess
import sys
import threading
import time

Rank = collections.namedtuple("Rank", "rank host process")

MASTER_PORT = 29500  # torchrun's
TIMED_OUT = 124  # as timeout(1) says it
GRACE = 2  # seconds between a request to end and the end


def status_of(process):
    """As a shell gives it."""
    code = process.returncode
    return 128 - code if code < 0 else code


class Job:
    """`command` on each host, `ranks` times, with RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT and
    QCCL_PORT set; or, with ranks=None, once on each of `hosts` without them.

    output: None: the caller's; "prefix": the caller's, each line after the rank's name; a folder: RANK.out and RANK.err there.
    """

    def __init__(self, bed, command, ranks=1, hosts=None, env=None, port=MASTER_PORT, output=None):
        self.ranks, self.pumps_, self.printing_ = [], [], threading.Lock()
        try:
            for host in bed.hosts if hosts is None else hosts:
                for local in range(1 if ranks is None else ranks):
                    rank = host.index if ranks is None else host.index * ranks + local
                    named = {} if ranks is None else {
                        "RANK": rank, "WORLD_SIZE": len(bed.hosts) * ranks, "LOCAL_RANK": local, "LOCAL_WORLD_SIZE": ranks,
                        "MASTER_ADDR": bed.hosts[0].address, "MASTER_PORT": port, "QCCL_PORT": port + 1}
                    self.start_(rank, host, command, {**{key: str(value) for key, value in named.items()}, **(env or {})}, output)
        except BaseException:
            self.end(grace=0)
            raise

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.end()

    def start_(self, rank, host, command, env, output):
        if output is None:
            process = host.start(command, env)
        elif output == "prefix":
            process = host.start(command, env, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            for source, sink in ((process.stdout, sys.stdout), (process.stderr, sys.stderr)):
                pump = threading.Thread(target=self.pump_, args=(source, sink, f"[{host.name} {rank}] "), daemon=True)
                pump.start()
                self.pumps_.append(pump)
        else:
            folder = pathlib.Path(output)
            with open(folder / f"{rank}.out", "wb") as out, open(folder / f"{rank}.err", "wb") as err:
                process = host.start(command, env, stdout=out, stderr=err)
        self.ranks.append(Rank(rank, host, process))

    def pump_(self, source, sink, prefix):
        with source:
            for line in source:
                text = line.decode(errors="replace").rstrip("\n")
                with self.printing_:
                    print(prefix + text, file=sink, flush=True)

    def wait(self, timeout=None):
        """The worst exit status of all ranks; TIMED_OUT after ending all if that takes longer than `timeout` seconds."""
        end = None if timeout is None else time.monotonic() + timeout
        try:
            for entry in self.ranks:
                entry.process.wait(None if end is None else max(0, end - time.monotonic()))
        except subprocess.TimeoutExpired:
            self.end()
            return TIMED_OUT
        for pump in self.pumps_:
            pump.join(GRACE)  # longer only where somebody else holds the pipe
        return max((status_of(entry.process) for entry in self.ranks), default=0)

    def statuses(self):
        """Of each rank; None for those that run."""
        return [None if entry.process.poll() is None else status_of(entry.process) for entry in self.ranks]

    def kill(self, rank, number=signal.SIGKILL):
        next(entry for entry in self.ranks if entry.rank == rank).process.send_signal(number)

    def end(self, grace=GRACE):
        """Asks those that still run to end, and kills those that do not."""
        for ask in (signal.SIGTERM, signal.SIGKILL) if grace else (signal.SIGKILL,):
            for entry in self.ranks:
                if entry.process.poll() is None:
                    entry.process.send_signal(ask)
            end = time.monotonic() + grace
            for entry in self.ranks:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    entry.process.wait(max(0.1, end - time.monotonic()))
