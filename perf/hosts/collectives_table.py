#!/usr/bin/python3
"""Measures every collective of QCCL beside Open MPI and Gloo on several hosts, which are made for it on this machine
(tests/support/testbed/hosts), one rank on each: fp32, medians of the slowest rank's times, in milliseconds.

With --sustained the times are means of the rank whose mean is longest: what a call takes in a row of calls. Medians of the slowest
rank are longer where ranks run ahead of each other, and tell more where a few calls were disturbed.

The contenders take turns within one run. Each QCCL codec has its time, and behind it how many times faster it is than the faster
of the other two. Ratios mean something within one run only. QCCL's ranks are started by Open MPI and measure it in the same
processes, in turns with every size.
"""
import argparse
import collections
import json
import pathlib
import sys

sys.dont_write_bytecode = True
HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1] / "tests" / "support")]
from comparison import contenders, vectors  # noqa: E402
from testbed import Testbed, run_command  # noqa: E402

# As qccl-perf calls them; Gloo has no scans.
COLLECTIVES = ("all_reduce", "reduce", "broadcast", "reduce_scatter", "all_gather", "all_to_all", "gather", "scatter", "scan",
               "exscan", "send", "sendrecv")
WITHOUT_GLOO = ("scan", "exscan")
TIMED_BYTES = 64 << 20  # of each size, within these numbers of iterations
FEWEST, MOST = 11, 1000
MOST_CHECKED = 4 << 20  # bytes: QCCL's ranks exchange their vectors for the check, which takes longer than what is measured


def iterations_for(size):
    return max(FEWEST, min(MOST, TIMED_BYTES // size))


def names(text):
    found = text.split(",")
    if unknown := [word for word in found if word not in COLLECTIVES]:
        raise argparse.ArgumentTypeError(f"{unknown[0]!r} is none of {', '.join(COLLECTIVES)}")
    return found


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hosts", type=int, default=4, metavar="N", help="hosts, at least 2 (4)")
    parser.add_argument("--rate", default="1gbit", help="of each link, each way, as tc has it (1gbit)")
    parser.add_argument("--sizes", default="64K,1M,16M,64M", metavar="LIST", help="bytes of a rank's longer buffer (64K,1M,16M,64M)")
    parser.add_argument("--collectives", type=names, default=list(COLLECTIVES), metavar="LIST", help="all if none is named")
    parser.add_argument("--codecs", default="none,int8", metavar="LIST", help="of QCCL (none,int8)")
    parser.add_argument("--sustained", action="store_true", help="compare what a call takes in a row of calls")
    parser.add_argument("--turns", type=int, default=3, metavar="N", help="of each contender (3)")
    parser.add_argument("--env", action="append", default=[], metavar="K=V", help="set for QCCL's ranks; repeatable")
    parser.add_argument("--program", default=HERE.parents[1] / "build/perf/qccl-perf", metavar="FILE", help="qccl-perf (build/perf/qccl-perf)")
    parser.add_argument("--python", metavar="FILE", help="an interpreter with torch, for Gloo")
    parser.add_argument("--patience", type=float, default=300, metavar="SECONDS", help="for each start of a contender (300)")
    chosen = parser.parse_args()
    try:
        chosen.sizes = [vectors.parse_size(word) for word in chosen.sizes.split(",")]
    except ValueError as reason:
        parser.error(f"--sizes: {reason}")
    if bad := [text for text in chosen.env if "=" not in text]:
        parser.error(f"--env {bad[0]}: is no KEY=VALUE")
    if chosen.hosts < 2 or chosen.turns < 1:
        parser.error("one host has nobody to talk to, and one turn is needed")
    return chosen


class Table:
    """times: {(collective, size): {contender: [microseconds...]}}."""

    def __init__(self, chosen, bed):
        self.chosen, self.bed = chosen, bed
        self.codecs = vectors.split_codecs(chosen.codecs)
        self.figure = "time_us_sustained" if chosen.sustained else "time_us"
        self.program = pathlib.Path(chosen.program).resolve()
        self.times = collections.defaultdict(lambda: collections.defaultdict(list))
        self.why = {}
        try:
            self.python = contenders.python_with_gloo(chosen.python)
        except contenders.Missing as reason:
            self.python, self.why["Gloo"] = None, str(reason)

    def note(self, collective, who, measure):
        try:
            for size, contender, time_us in measure(collective):
                self.times[collective, size][contender].append(time_us)
        except contenders.Missing as reason:
            self.why[f"{collective} of {who}"] = str(reason)

    def run(self):
        for turn in range(self.chosen.turns):
            for collective in self.chosen.collectives:
                print(f"turn {turn + 1}: {collective}", file=sys.stderr, flush=True)
                self.note(collective, "QCCL and Open MPI", self.qccl_)
                if self.python and collective not in WITHOUT_GLOO:
                    self.note(collective, "Gloo", self.gloo_)

    def qccl_(self, collective):
        """Also Open MPI, which qccl-perf measures in its own processes."""
        path = self.bed.folder / "qccl.json"
        for size in self.chosen.sizes:
            path.unlink(missing_ok=True)
            told = [word for text in (f"QCCL_LINK_RATE={self.chosen.rate}", *self.chosen.env) for word in ("-x", text)]
            words = [*contenders.openmpi_words(self.bed, 1, "ob1"), *told, self.program, collective, "-b", size, "-e", size,
                     "-n", iterations_for(size), "-w", 1, "-c", int(size <= MOST_CHECKED), "--codec", ",".join(self.codecs),
                     "--lossless", "0", "--baseline", "mpi", "--json", path]
            contenders.run_launcher(self.bed, words, {}, self.chosen.patience)
            for row in json.loads(path.read_text())["rows"]:
                if row["in_place"]:
                    continue
                if row["ranks"] != len(self.bed.hosts) or row["ranks_agree"] is False:
                    raise contenders.Missing(f"a wrong result of {size} bytes with {row['codec']}")
                yield size, row["codec"], row[self.figure]
                if row["baseline"]:
                    yield size, "Open MPI", row["baseline"][self.figure]

    def gloo_(self, collective):
        plan = [f"{size}:{iterations_for(size)}" for size in self.chosen.sizes]
        words = [self.python, HERE / "comparison" / "collectives_gloo.py", collective, *plan]
        said = contenders.run_job(self.bed, words, 1, {"GLOO_SOCKET_IFNAME": "eth0"}, self.chosen.patience)
        for (label, size), sample in contenders.samples_of(said, "Gloo").items():
            yield size, label, sample.sustained_us if self.chosen.sustained else sample.time_us

    def print(self, out):
        peers = ("Open MPI", "Gloo")
        print(f"# {self.chosen.hosts} hosts, links of {self.chosen.rate}, {self.chosen.turns} turns, milliseconds", file=out)
        print(f"{'collective':16}{'bytes':>10}", *(f"{peer:>10}" for peer in peers), *(f"{codec:>10} x peer" for codec in self.codecs), file=out)
        for (collective, size), row in self.times.items():
            medians = {who: contenders.middle(times) for who, times in row.items()}
            best = min((medians[peer] for peer in peers if peer in medians), default=None)
            shown = [f"{medians[peer] / 1e3:10.3f}" if peer in medians else f"{'-':>10}" for peer in peers]
            for codec in self.codecs:
                time_us = medians.get(codec)
                shown.append(f"{time_us / 1e3:10.3f} {best / time_us if best else float('nan'):6.2f}" if time_us else f"{'-':>10} {'-':>6}")
            print(f"{collective:16}{size:10}", *shown, file=out)
        for what, reason in self.why.items():
            print(f"# {what}: {reason}", file=out)


def measure(chosen):
    with Testbed(chosen.hosts, chosen.rate) as bed:
        table = Table(chosen, bed)
        table.run()
    table.print(sys.stdout)
    return 0 if table.times else 1


if __name__ == "__main__":
    sys.exit(run_command("collectives_table.py", lambda: measure(arguments())))
