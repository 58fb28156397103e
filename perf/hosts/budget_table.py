#!/usr/bin/python3
"""Whether codec=auto:nmse=E keeps E on data of yours, and how many bits that takes.

Each folder holds a file for each rank, rank0.npy and so on. For every team (two ranks, and all of them) and every error the
ranks are started as if each were on a host of its own with a link of --rate, which counts for the planner alone: messages go
over the loopback. One row is printed for each: the codec that the library chose, its bits, the error measured; beside them the
codec with the fewest bits that auto could have chosen and that keeps the error by the same algorithm, as measured on the same
data. ok: the error is kept, and with at most --slack bits more. Ends with 1 if a row is not.
"""
import argparse
import json
import math
import os
import pathlib
import re
import signal
import subprocess
import sys

import numpy

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tests" / "support"))
from launchers import free_port, start_by_hand  # noqa: E402

ERRORS = (1e-1, 1e-2, 1e-3, 1e-4, 1e-5)
QUICK = ("-n", "1", "-w", "0", "-m", "1", "--lossless", "0", "--json", "-")
OTHERS = ("RANK", "WORLD_SIZE", "MASTER_", "PMI_", "PMIX_", "OMPI_", "SLURM_", "QCCL_")
ROW = "{:24} {:>5}  {:>6}  {:26} {:10} {:>6} {:>9}  {:26} {:>6} {:>9}  {}"


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=pathlib.Path, metavar="FOLDER", help="with rank0.npy, rank1.npy, ...")
    parser.add_argument("--build", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parents[2] / "build",
                        help="where qccl-perf and qccl-info were built (build)")
    parser.add_argument("--errors", type=lambda text: [float(word) for word in text.split(",")], default=ERRORS, metavar="LIST",
                        help="the E of auto:nmse=E (1e-1,1e-2,1e-3,1e-4,1e-5)")
    parser.add_argument("--rate", default="1gbit", help="of the links, for the planner (1gbit)")
    parser.add_argument("--slack", type=float, default=2, metavar="BITS", help="more than the fewest that keep the error (2)")
    return parser.parse_args()


def environment(**more):
    clean = {name: value for name, value in os.environ.items() if not name.startswith(OTHERS)}
    return {**clean, **{name: str(value) for name, value in more.items()}}


def ended(command, **more):
    done = subprocess.run([str(word) for word in command], env=environment(**more), capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}: {done.stderr.strip()}")
    return done.stdout


def row_of(text):
    """Out of place."""
    return json.loads(text)["rows"][0::2]


class Data:
    """The files of a folder, for so many ranks."""

    def __init__(self, given, folder, ranks):
        self.given, self.folder, self.ranks = given, folder, ranks
        first = numpy.load(folder / "rank0.npy", mmap_mode="r")
        self.bytes, self.type_bits = first.nbytes, 8 * first.itemsize
        self.type = {"float16": "half", "float32": "float", "float64": "double"}.get(str(first.dtype))
        if not self.type:
            sys.exit(f"{folder}: rank0.npy holds {first.dtype}, and only floating point is encoded")
        self.measured = {}  # (codec, algorithm): NMSE

    def tool(self, name):
        return self.given.build / "perf" / name

    def candidates(self):
        """(codec, bits) of all that auto chooses from."""
        said = ended([self.tool("qccl-info"), "explain", "all_reduce", "--bytes", self.bytes, "--type", self.type, "--ranks", self.ranks,
                      "--codec", "auto:nmse=0.5"])
        return [(codec, float(bits)) for codec, bits in re.findall(r"^    (\S+), (\S+) bits a value: ", said, re.M)]

    def measure(self, algorithm):
        """All candidates by the algorithm, whose bytes are the same on one host as on several."""
        names = [codec for codec, _ in self.candidates()]
        command = [self.tool("qccl-perf"), "all_reduce", "-t", self.ranks, "--input", self.folder / "rank%r.npy", "--codec", ",".join(names),
                   "--algo", algorithm, *QUICK]
        for row in row_of(ended(command)):
            self.measured[row["codec"], algorithm] = row["nmse"]

    def run_auto(self, error):
        """What the library does by itself, each rank on what counts as a host of its own."""
        command = [str(word) for word in (self.tool("qccl-perf"), "all_reduce", "--input", self.folder / "rank%r.npy", "--codec",
                                          f"auto:nmse={error}", *QUICK)]
        port = free_port()
        environments = [environment(RANK=rank, WORLD_SIZE=self.ranks, MASTER_ADDR="localhost", QCCL_PORT=port, QCCL_HOSTID=f"host {rank}",
                                    QCCL_LINK_RATE=self.given.rate, QCCL_UCX_DEVICES="lo", QCCL_SOCKET_IFNAME="lo")
                        for rank in range(self.ranks)]
        done = start_by_hand([command] * self.ranks, environments, patience=math.inf, ends_with_first_failure=True)
        failed = [(rank, status, said.strip()) for rank, (status, _, said) in enumerate(done) if status != 0]
        if failed:  # rather one that was not killed because another had failed
            rank, status, said = min(failed, key=lambda each: each[1] == -signal.SIGKILL)
            sys.exit(said or f"rank {rank} ended with status {status}")
        return row_of(done[0][1])[0]

    def row(self, error):
        chosen = self.run_auto(error)
        codec, algorithm = chosen["used_codec"], chosen["algorithm"]
        candidates = [*self.candidates(), ("none", float(self.type_bits))]
        if ("bf16", algorithm) not in self.measured:
            self.measure(algorithm)
            self.measured["none", algorithm] = 0.0
        cheapest, fewest = next((name, bits) for name, bits in candidates if self.measured[name, algorithm] <= error)
        bits = dict(candidates)[codec]
        is_ok = chosen["nmse"] <= error and bits - fewest <= self.given.slack
        print(ROW.format(self.folder.name, self.ranks, f"{error:g}", codec, algorithm, f"{bits:.4g}", f"{chosen['nmse']:.2e}", cheapest,
                         f"{fewest:.4g}", f"{self.measured[cheapest, algorithm]:.2e}", "yes" if is_ok else "NO"), flush=True)
        return is_ok


def main():
    given = arguments()
    print(ROW.format("data", "ranks", "E", "chosen", "algorithm", "bits", "NMSE", "cheapest that keeps E", "bits", "NMSE", "ok"))
    all_ok = True
    for folder in given.folders:
        files = len(list(folder.glob("rank*.npy")))
        if not (folder / "rank0.npy").exists():
            sys.exit(f"{folder} holds no rank0.npy")
        for ranks in sorted({min(2, files), files}):
            data = Data(given, folder, ranks)
            for error in given.errors:
                all_ok = data.row(error) and all_ok
    return 0 if all_ok else 1


if __name__ == "__main__":
    sys.exit(main())
