#!/usr/bin/python3
"""Compares QCCL with Open MPI, MPICH and Gloo on several hosts, which are made for it on this machine (tests/support/testbed/hosts):
the sum of an fp32 vector over all ranks. Contenders take turns within one run, beside a plain ring of TCP streams that says
what the links carry; a table is printed, a CSV file and a picture are written. Ratios mean something within one run only.

limit: line x N / (2 (N - 1)) x 32 / bits, for N hosts and the codec's bits on the wire. x best peer: against the fastest of
the others, by medians. vectors sent: what each host's interface sent for one sum, headers included, over the vector's bytes.
"""
import argparse
import os
import pathlib
import sys
import time

sys.dont_write_bytecode = True
HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1] / "tests" / "support")]
from comparison import contenders, picture, table, vectors  # noqa: E402
from comparison.rounds import Rounds  # noqa: E402
from testbed import Testbed, run_command  # noqa: E402

PROCESSOR_BOUND = 0.9  # of the rate: what reaches less is slowed down by something else
PEERS = ("ob1", "ucx", "mpich", "gloo", "qccl")


def words(known=None):
    def split(text):
        found = [word for word in text.split(",") if word]
        unknown = [word for word in found if known and word not in known]
        if unknown:
            raise argparse.ArgumentTypeError(f"{unknown[0]!r} is none of {', '.join(known)}")
        return found
    return split


def sizes(text):
    try:
        return sorted({vectors.parse_size(word) for word in text.split(",")})
    except ValueError as reason:
        raise argparse.ArgumentTypeError(str(reason)) from None


def count(text):
    if not text.isdigit() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is no number above 0")
    return int(text)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hosts", type=count, default=4, metavar="N", help="hosts (4)")
    parser.add_argument("--ranks", type=count, default=1, metavar="N", help="ranks on each host (1)")
    parser.add_argument("--rate", default="1gbit", help="of each link, each way, as tc has it; none: no limit (1gbit)")
    parser.add_argument("--burst", default="256k", metavar="SIZE", help="what passes at once after a pause, as tc has it (256k)")
    parser.add_argument("--sizes", type=sizes, metavar="LIST", help="bytes of the vector (64K,1M,16M,64M)")
    parser.add_argument("--repetitions", type=count, metavar="N", help="turns of each contender (5)")
    parser.add_argument("--codecs", default="none,int8,int4", metavar="LIST", help="of QCCL (none,int8,int4)")
    parser.add_argument("--algorithms", type=words(), default=["auto"], metavar="LIST", help="of QCCL, as qccl-perf's --algo (auto)")
    parser.add_argument("--leave-out", type=words(PEERS), default=[], metavar="LIST", help=f"of {', '.join(PEERS)}")
    parser.add_argument("--no-counts", action="store_true", help="do not count the bytes on the links, which takes starts of its own")
    parser.add_argument("--quick", action="store_true", help="1M and 16M, 3 turns, bytes counted at 16M alone")
    parser.add_argument("--input", metavar="DIR/rank%r.npy", help="the ranks' vectors, fp32 (made, as gradients are)")
    parser.add_argument("--env", action="append", default=[], metavar="K=V", help="set for QCCL's ranks; repeatable")
    parser.add_argument("--program", default=HERE.parents[1] / "build/perf/qccl-perf", metavar="FILE", help="qccl-perf (build/perf/qccl-perf)")
    parser.add_argument("--python", metavar="FILE", help="an interpreter with torch, for Gloo")
    parser.add_argument("--patience", type=float, default=120, metavar="SECONDS", help="for each start of a contender (120)")
    parser.add_argument("--output", metavar="PREFIX", help="PREFIX.csv and PREFIX.svg (hosts-NxR-RATE)")
    chosen = parser.parse_args()
    chosen.sizes = chosen.sizes or sizes("1M,16M" if chosen.quick else "64K,1M,16M,64M")
    chosen.repetitions = chosen.repetitions or (3 if chosen.quick else 5)
    chosen.output = chosen.output or f"hosts-{chosen.hosts}x{chosen.ranks}-{chosen.rate}"
    if chosen.hosts * chosen.ranks < 2:
        parser.error("one rank has nobody to sum with")
    if bad := [text for text in chosen.env if "=" not in text]:
        parser.error(f"--env {bad[0]}: is no KEY=VALUE")
    return chosen


def makers(chosen, *where):
    """{name to leave out: {label: what makes the contender}}."""
    # Links made by tc do not say their rate, as a NIC would; without it nothing would be encoded.
    told = {} if chosen.rate == "none" else {"QCCL_LINK_RATE": chosen.rate}
    codecs, settings = vectors.split_codecs(chosen.codecs), told | dict(text.split("=", 1) for text in chosen.env)
    qccl = {}
    for algorithm in chosen.algorithms:
        named = None if algorithm == "auto" else algorithm
        label = contenders.Label("QCCL", chosen.codecs, named)
        qccl[label] = lambda named=named: contenders.Qccl(chosen.program, codecs, named, settings, *where)
    return {"ob1": {contenders.Label("Open MPI ob1"): lambda: contenders.OpenMpi("ob1", *where)},
            "ucx": {contenders.Label("Open MPI ucx"): lambda: contenders.OpenMpi("ucx", *where)},
            "mpich": {contenders.Label("MPICH"): lambda: contenders.Mpich(*where)},
            "gloo": {contenders.Label("Gloo"): lambda: contenders.Gloo(chosen.python, *where)},
            "qccl": qccl}


def gather(chosen, bed, pattern, tell):
    """(contenders, {label: [why it is missing]})."""
    found, missing = [], {}
    for name, row in makers(chosen, bed, chosen.ranks, pattern, chosen.patience).items():
        for label, make in row.items() if name not in chosen.leave_out else ():
            try:
                found.append(make())
            except contenders.Missing as reason:
                tell(f"{label.library} is left out: {reason}")
                missing[label] = [str(reason)]
    return found, missing


def describe(chosen, rounds, out):
    load = os.getloadavg()[0]
    print(f"# {chosen.hosts} hosts x {chosen.ranks} ranks, links of {chosen.rate}, {os.cpu_count()} cores, load {load:.1f}, "
          f"{time.strftime('%Y-%m-%d %H:%M')}, medians of {chosen.repetitions} turns", file=out)
    print(f"# {chosen.burst} pass a link at once after a pause: sums of little more may be faster than the limit", file=out)
    if rounds.line():
        slowest = min(line.slowest for line in rounds.lines)
        limit = table.limit_of(rounds.line(), chosen.hosts, "none")
        print(f"# line, by a ring of TCP streams: {rounds.line() / 1e9:.4f} GB/s each way (the slowest stream of all turns {slowest / 1e9:.4f}); "
              f"limit of a lossless sum {limit:.4f} GB/s", file=out)
        nominal = table.nominal_line(chosen.rate)
        if nominal and rounds.line() < PROCESSOR_BOUND * nominal:
            print(f"# the rate allows {nominal / 1e9:.4f} GB/s each way: here the processors are the bound, of the line, too", file=out)


def name_of(row):
    if row.label.library != "QCCL":
        return row.label.library
    return " ".join(filter(None, ("QCCL", row.label.codec, row.label.algorithm)))


def write(chosen, rounds, rows):
    table.write_csv(f"{chosen.output}.csv", rows, {"hosts": chosen.hosts, "ranks_per_host": chosen.ranks, "rate": chosen.rate,
                                                   "line_GBps": f"{(rounds.line() or 0) / 1e9:.6g}"})
    curves, limits = {}, {}
    for row in rows:
        curves.setdefault(name_of(row), []).append((row.size, row.algbw))
        if row.limit:
            limits[f"limit, {row.label.codec}"] = row.limit
    picture.write_picture(f"{chosen.output}.svg", f"Sum of fp32, {chosen.hosts} hosts x {chosen.ranks} ranks, links of {chosen.rate}", curves, limits)


def compare(chosen):
    begin = time.monotonic()
    tell = lambda text: print(f"[{time.monotonic() - begin:6.0f} s] {text}", file=sys.stderr, flush=True)
    with Testbed(chosen.hosts, None if chosen.rate == "none" else chosen.rate, chosen.burst) as bed:
        pattern = chosen.input and str(pathlib.Path(chosen.input).resolve())
        pattern = pattern or vectors.write_vectors(bed.folder, chosen.hosts * chosen.ranks, chosen.sizes[-1])
        found, missing = gather(chosen, bed, pattern, tell)
        rounds = Rounds(bed, found, chosen.sizes, tell)
        rounds.failures.update(missing)
        rounds.run(chosen.repetitions)
        if not chosen.no_counts:
            rounds.count(chosen.sizes[-1:] if chosen.quick else chosen.sizes)
        rows = table.rows_of(rounds, chosen.ranks)
    describe(chosen, rounds, sys.stdout)
    table.print_table(rows, rounds.failures, sys.stdout)
    if not rows:
        return 1
    write(chosen, rounds, rows)
    print(f"# written: {chosen.output}.csv {chosen.output}.svg")
    return 0


if __name__ == "__main__":
    sys.exit(run_command("compare_hosts.py", lambda: compare(arguments())))
