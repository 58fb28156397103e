#!/usr/bin/python3
"""How good the planner's picks are: measures every algorithm beside the pick, in turns within one run, on several setups of this
machine, and prints how far each pick is from the best.

A cell is a collective, a size and a codec; a time is that of a call out of place and one in place together, each the median
of its run and, where calls vary, of several rounds. Each round of a setup calibrates it first, since a virtual machine's cores
are near each other in one second and not in the next; no variable says anything of it.
Algorithms whose schedules are the same on all ranks are one program, as direct and ring of two ranks: its time is the least of
those measured, the planner's own row among them. A pick is right if it takes at most 10 % more than the best.

  plan_table.py measure --raw FOLDER [--setups LIST] [--collectives LIST] [--codecs LIST] [--smallest BYTES] [--largest BYTES]
                        [--rounds N] [--again]
  plan_table.py table --raw FOLDER [--csv FILE]
  plan_table.py wrong-rates --raw FOLDER   what it costs if the rate between hosts is taken for 4 times too much or too little
  plan_table.py simulated --raw FOLDER     how many of the picks take out of place what the simulator says, in the median of the rounds
"""
import argparse
import collections
import contextlib
import csv
import functools
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
Setup = collections.namedtuple("Setup", "hosts ranks rate")
SLOW_WIRE = "1gbit"  # large calls that wait for it take long and vary little
SETUPS = {  # several ranks of one host share its cores
    "shm-2": Setup(1, 2, None),
    "shm-4": Setup(1, 4, None),
    "4x1-1gbit": Setup(4, 1, SLOW_WIRE),
    "2x2-10gbit": Setup(2, 2, "10gbit"),
    "2x2-1gbit": Setup(2, 2, SLOW_WIRE),
    "2x1-loopback": Setup(2, 1, "none"),
}
COLLECTIVES = {  # with the algorithms that have them
    "all_reduce": "oneshot,direct,ring,halving,tree,tree:shape=double,doubling,hierarchy",
    "reduce_scatter": "oneshot,direct,ring,halving,hierarchy",
    "all_gather": "oneshot,direct,ring,halving,bruck,neighbour,hierarchy",
    "broadcast": "oneshot,direct,ring,tree,tree:shape=double,hierarchy",
    "reduce": "oneshot,direct,ring,halving,tree,tree:shape=double,chain,hierarchy",
    "gather": "oneshot,direct,tree,tree:shape=double",
    "scatter": "oneshot,direct,tree,tree:shape=double",
    "all_to_all": "oneshot,direct,pairwise,bruck,hierarchy",
    "scan": "oneshot,doubling,chain",
    "exscan": "oneshot,doubling,chain",
    "send": "oneshot,direct",
}
RUN_AHEAD = ("broadcast", "reduce", "gather", "scatter", "scan", "exscan", "send")  # some ranks wait for nobody
Band = collections.namedtuple("Band", "smallest largest iterations repeats_on_slow_wire")
BANDS = [
    Band(8, 8, 200, True), Band(64, 16 << 10, 200, True), Band(64 << 10, 1 << 20, 50, True), Band(4 << 20, 16 << 20, 8, False),
    Band(64 << 20, 256 << 20, 2, False)]
RIGHT = 1.10
WRONG_BY, MOST_LOSS = 4, 1.25
CLOSE = 1.20


def has_spinning_ranks(setup):
    """Whether nothing that works for the ranks needs a core beside theirs, and none of them sleeps."""
    return setup.hosts == 1 and setup.ranks <= os.cpu_count()


@contextlib.contextmanager
def busy_cores():
    """Keeps this machine's cores busy with what gives way to all else. The host of a virtual machine moves cores that wake up: those
    of a program that has just been started are near each other for a fifth of a second, and then as far as for one that runs on."""
    def give_way(core):
        os.sched_setaffinity(0, {core})
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"], preexec_fn=functools.partial(give_way, core))
            for core in os.sched_getaffinity(0)]
    try:
        yield
    finally:
        for process in busy:
            process.kill()
            process.wait()


def cores(setup):
    """As --cores has those that the testbed gives to the setup's hosts."""
    all_cores = os.cpu_count()
    return f"{all_cores}:shared" if setup.hosts > all_cores else str(all_cores // setup.hosts)


def hosts(setup):
    """As --hosts has them."""
    return ",".join([str(setup.ranks)] * setup.hosts)


def started(setup, perf):
    """The command as all ranks of the setup run it."""
    if setup.hosts == 1:
        return perf + ["--ranks", str(setup.ranks)]
    return [sys.executable, str(HERE.parents[1] / "tests/support/testbed/hosts"), "--hosts", str(setup.hosts), "--ranks", str(setup.ranks),
            "--rate", setup.rate, "--"] + perf


def command(program, setup, collective, band, codecs, out):
    perf = [str(program), collective, "-b", str(band.smallest), "-e", str(band.largest), "-f", "4", "-n", str(band.iterations),
            "-w", "1", "-c", "0", "--algo", "auto," + COLLECTIVES[collective], "--codec", codecs, "--json", str(out)]
    return started(setup, perf)


def run(name, words, cache):
    """Status of a command with a user's cache directory of its own; what it says is shown if it fails."""
    with tempfile.TemporaryFile() as noise:
        status = subprocess.run(words, env={**os.environ, "XDG_CACHE_HOME": str(cache)}, stdout=noise, stderr=subprocess.STDOUT).returncode
        noise.seek(0)
        if status != 0:
            print(f"{name}: {noise.read()[-2000:].decode(errors='replace')}", file=sys.stderr)
    print(f"{name}: status {status}", file=sys.stderr, flush=True)
    return status


def runs(chosen, setup, number):
    """(collective, band) of a round."""
    for collective in chosen.collectives:
        for band in BANDS:
            is_chosen = band.smallest <= chosen.largest and chosen.smallest <= band.smallest
            if is_chosen and (number == 0 or setup.rate != SLOW_WIRE or band.repeats_on_slow_wire):
                yield collective, band._replace(largest=min(band.largest, chosen.largest))


def cache_of(raw, name, number):
    """The user's cache directory of a round."""
    return (raw / f"{name}.{number}.cache").resolve()


def measure(chosen):
    chosen.raw.mkdir(parents=True, exist_ok=True)
    failed = 0
    for name in chosen.setups:
        with busy_cores() if has_spinning_ranks(SETUPS[name]) else contextlib.nullcontext():
            failed += sum(measure_round(chosen, name, number) for number in range(chosen.rounds))
    return 1 if failed else 0


def measure_round(chosen, name, number):
    """How many of its commands have failed."""
    setup, cache = SETUPS[name], cache_of(chosen.raw, name, number)
    failed = 0
    if chosen.again or not any(cache.glob("qccl/*")):
        failed += run(f"{name}.{number}, calibration", started(setup, [str(chosen.program), "calibrate"]), cache) != 0
    for collective, band in runs(chosen, setup, number):
        out = chosen.raw / f"{name}.{collective}.{band.smallest}.{number}.json"
        if chosen.again or not out.exists():
            failed += run(out.name, command(chosen.program, setup, collective, band, chosen.codecs, out), cache) != 0
    return failed


class Cells:
    """What has been measured of each (setup, collective, bytes, codec): in a round, or in all."""

    def __init__(self, raw, number="*"):
        self.picks, self.used = {}, {}  # the planner's algorithm, and the codec that travelled then: of the first round
        self._times = collections.defaultdict(lambda: collections.defaultdict(list))  # {cell: {(algorithm, in place): [us]}}
        for path in sorted(raw.glob(f"*.{number}.json")):
            setup = path.name.split(".")[0]
            if setup in SETUPS:
                self._read(setup, json.loads(path.read_text())["rows"])

    def _read(self, setup, rows):
        seen = collections.Counter()
        for row in rows:
            if row["bytes"] == 0:  # parts of which ranks have none
                continue
            cell = (setup, row["collective"], row["bytes"], row["codec"])
            place = cell + (row["in_place"],)
            seen[place] += 1
            is_pick = seen[place] == 1  # the planner's own row stands before those that were asked for
            if is_pick:
                self.picks.setdefault(cell, row["algorithm"])
                self.used.setdefault(cell, row["used_codec"])
                if (row["algorithm"], row["used_codec"]) != (self.picks[cell], self.used[cell]):
                    continue
            # A root that waits for nobody runs ahead, which distorts medians.
            time = row["time_us_sustained" if row["collective"] in RUN_AHEAD else "time_us"]
            self._times[cell]["auto" if is_pick else row["algorithm"], row["in_place"]].append(time)

    def __iter__(self):
        return iter(sorted(self._times))

    def times(self, cell):
        """{algorithm: us}, in place and out of place together; what the planner picked is "auto"."""
        both = collections.defaultdict(float)
        for (algorithm, _), times in self._times[cell].items():
            both[algorithm] += statistics.median(times)
        return both

    def out_of_place(self, cell, algorithm):
        return statistics.median(self._times[cell][algorithm, 0])


@functools.cache
def program_of(info, setup, collective, codec, algorithm):
    """The schedules of all ranks as text."""
    return tuple(subprocess.run([str(info), "schedule", collective, "--algo", algorithm, "--ranks", str(setup.hosts * setup.ranks),
                                 "--hosts", hosts(setup), "--codec", codec, "--rank", str(rank)],
                                capture_output=True, text=True, check=True).stdout for rank in range(setup.hosts * setup.ranks))


def least_of(cells, cell, codec, info):
    """{program: us} of a cell whose values travel with this codec."""
    least = {}
    for algorithm, time in cells.times(cell).items():
        program = program_of(info, SETUPS[cell[0]], cell[1], codec, cells.picks[cell] if algorithm == "auto" else algorithm)
        least[program] = min(time, least.get(program, time))
    return least


def judged(cells, info):
    for cell in cells:
        setup, collective, size, codec = cell
        pick, times = cells.picks[cell], cells.times(cell)
        programs = {algorithm: program_of(info, SETUPS[setup], collective, codec, algorithm) for algorithm in {pick, *times} - {"auto"}}
        least = least_of(cells, cell, codec, info)
        best = min((algorithm for algorithm in times if algorithm != "auto"), key=lambda algorithm: least[programs[algorithm]])
        time, best_time = least[programs[pick]], min(least.values())
        if time == best_time:
            best = pick
        ratio = time / best_time
        yield {"setup": setup, "collective": collective, "bytes": size, "codec": codec, "pick": pick, "pick_us": time,
               "best": best, "best_us": best_time, "ratio": ratio, "right": ratio <= RIGHT}


def table(chosen):
    rows = list(judged(Cells(chosen.raw), chosen.info))
    if not rows:
        print(f"{chosen.raw}: no measurements", file=sys.stderr)
        return 1
    if chosen.csv:
        with open(chosen.csv, "w", newline="") as file:
            writer = csv.DictWriter(file, rows[0].keys(), lineterminator="\n")
            writer.writeheader()
            for row in rows:
                writer.writerow({**row, "pick_us": f"{row['pick_us']:.2f}", "best_us": f"{row['best_us']:.2f}",
                                 "ratio": f"{row['ratio']:.3f}", "right": int(row["right"])})
    if chosen.wrong:
        for row in rows:
            if not row["right"]:
                print("{setup:13} {collective:15} {bytes:>10} {codec:6} {pick:18} {pick_us:11.1f} us  best {best:18} {best_us:11.1f} us  "
                      "{ratio:.2f}".format(**row))
    for setup in SETUPS:
        of = [row for row in rows if row["setup"] == setup]
        if of:
            right, worst = sum(row["right"] for row in of), max(of, key=lambda row: row["ratio"])
            print(f"{setup:13} {right:4} of {len(of):4} cells right ({100 * right / len(of):.0f} %); worst {worst['ratio']:.2f}: "
                  f"{worst['collective']} of {worst['bytes']} bytes, {worst['codec']}, by {worst['pick']} and not {worst['best']}")
    return 0


def calibration_of(raw, setup, number=0):
    (file,) = (cache_of(raw, setup, number) / "qccl").iterdir()
    return file


def gigabytes_per_second(calibration):
    """Of a host's line, as it was measured."""
    return float(re.search(r"(?m)^far .*\bbytes_per_ns=(\S+)", calibration.read_text())[1])


def rows_of(words, setup, calibration, rate, sizes):
    """What a tool's JSON says of a setup that is calibrated so."""
    machine = ["--hosts", hosts(setup), "--cores", cores(setup)] + (["--rate", f"{rate:g}GB/s"] if setup.hosts > 1 else [])
    run = subprocess.run([*map(str, words), "-b", str(min(sizes)), "-e", str(max(sizes)), "-f", "2", *machine, "--json", "-"],
                         env={**os.environ, "QCCL_CALIBRATION": str(calibration)}, capture_output=True, text=True, check=True)
    return json.loads(run.stdout)["rows"]


def explained(info, setup, calibration, rate, collective, sizes, codec):
    """{bytes: (algorithm, codec that travels)} as the planner chooses by this rate."""
    rows = rows_of([info, "explain", collective, "--codec", codec], setup, calibration, rate, sizes)
    return {row["bytes"]: (row["algorithm"], row["used_codec"]) for row in rows}


def least_times(cells, cell, used, info):
    """{program: us} of a cell whose values travel with `used`: of its own calls, or of those of the cell that asks for it."""
    setup, collective, size, codec = cell
    measured = cell if cells.used[cell] == used else (setup, collective, size, used)
    return least_of(cells, measured, used, info) if measured in cells.picks else {}


def losses(chosen, cells, setup, factor):
    """(time over the best candidate's, cell, algorithm, codec that travels) of what the planner would choose by a wrong rate. The
    candidates are the cell's own and the lossless ones."""
    calibration = calibration_of(chosen.raw, setup)
    asked = collections.defaultdict(list)  # {(collective, codec): sizes}
    for name, collective, size, codec in cells:
        if name == setup:
            asked[collective, codec].append(size)
    for (collective, codec), sizes in sorted(asked.items()):
        picks = explained(chosen.info, SETUPS[setup], calibration, factor * gigabytes_per_second(calibration), collective, sizes, codec)
        for size in sizes:
            if size not in picks:  # parts that ranks share are not a power of two
                continue
            cell, (algorithm, used) = (setup, collective, size, codec), picks[size]
            of_used = least_times(cells, cell, used, chosen.info)
            program = program_of(chosen.info, SETUPS[setup], collective, used, algorithm)
            if program in of_used:
                others = [least_times(cells, cell, other, chosen.info) for other in {cells.used[cell], "none"}]
                best = min(time for times in (of_used, *others) for time in times.values())
                yield of_used[program] / best, cell, algorithm, used


def wrong_rates(chosen):
    cells = Cells(chosen.raw)
    for setup in SETUPS:
        if SETUPS[setup].hosts == 1 or not any(cell[0] == setup for cell in cells):
            continue
        for factor in (1 / WRONG_BY, 1, WRONG_BY):
            found = list(losses(chosen, cells, setup, factor))
            if not found:
                continue
            kept = sum(loss[0] <= MOST_LOSS for loss in found)
            print(f"{setup:13} {kept:4} of {len(found):4} picks lose at most {100 * (MOST_LOSS - 1):.0f} % at {factor:4} times the rate "
                  f"({100 * kept / len(found):.0f} %); worst {max(found)[0]:.2f}")
            for ratio, (_, collective, size, codec), algorithm, used in found if chosen.wrong else []:
                if ratio > MOST_LOSS:
                    print(f"  {collective:15} {size:>10} {codec:6} {algorithm:18} with {used:6} {ratio:.2f}")
    return 0


def simulation(program, name, calibration, collective, sizes, codec, algorithm):
    """{bytes: us} of calls with this codec and algorithm."""
    setup = SETUPS[name]
    rate = gigabytes_per_second(calibration) if setup.hosts > 1 else None
    words = [program, "simulate", collective, "--algo", algorithm, "--codec", codec if codec == "none" else codec + ":min=0"]
    return {row["bytes"]: row["time_us"] for row in rows_of(words, setup, calibration, rate, sizes) if not row["in_place"]}


def simulated_round(chosen, number):
    """(cell, algorithm, simulated time over measured) of a round, by its own calibration."""
    cells = Cells(chosen.raw, number)
    alike = collections.defaultdict(list)  # {(setup, collective, codec, algorithm): cells}
    for cell in cells:
        alike[cell[0], cell[1], cells.used[cell], cells.picks[cell]].append(cell)
    for (setup, collective, codec, algorithm), group in alike.items():
        times = simulation(chosen.program, setup, calibration_of(chosen.raw, setup, number), collective, {cell[2] for cell in group},
                           codec, algorithm)
        for cell in group:
            if cell[2] in times:
                yield cell, algorithm, times[cell[2]] / cells.out_of_place(cell, "auto")


def simulated(chosen):
    of_rounds, algorithms = collections.defaultdict(list), {}
    for number in sorted({int(path.name.split(".")[-2]) for path in chosen.raw.glob("*.json")}):
        for cell, algorithm, ratio in simulated_round(chosen, number):
            of_rounds[cell].append(ratio)
            algorithms.setdefault(cell, algorithm)
    ratios = collections.defaultdict(list)
    for cell, of in of_rounds.items():
        ratios[cell[0]].append((statistics.median(of), cell, algorithms[cell]))
    for setup, of in ratios.items():
        close = sum(1 / CLOSE <= ratio <= CLOSE for ratio, _, _ in of)
        print(f"{setup:13} {close:4} of {len(of):4} cells simulated within {100 * (CLOSE - 1):.0f} % ({100 * close / len(of):.0f} %)")
        for ratio, (_, collective, size, codec), algorithm in sorted(of, key=lambda one: one[1]) if chosen.wrong else []:
            if not 1 / CLOSE <= ratio <= CLOSE:
                print(f"  {collective:15} {size:>10} {codec:6} {algorithm:18} {ratio:.2f}")
    return 0


def words(known):
    def split(text):
        found = text.split(",")
        if unknown := [word for word in found if word not in known]:
            raise argparse.ArgumentTypeError(f"{unknown[0]!r} is none of {', '.join(known)}")
        return found
    return split


def size(text):
    number, unit = text.rstrip("KMG"), text[-1:]
    if not number.isdigit():
        raise argparse.ArgumentTypeError(f"{text!r} is no number of bytes such as 64M")
    return int(number) << {"K": 10, "M": 20, "G": 30}.get(unit, 0)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False)
    actions = parser.add_subparsers(dest="action", required=True)
    measuring = actions.add_parser("measure", help="measure what is not in the folder yet", allow_abbrev=False)
    measuring.add_argument("--setups", type=words(SETUPS), default=list(SETUPS), metavar="LIST", help=f"of {', '.join(SETUPS)} (all)")
    measuring.add_argument("--collectives", type=words(COLLECTIVES), default=list(COLLECTIVES), metavar="LIST",
                           help=f"of {', '.join(COLLECTIVES)} (all)")
    measuring.add_argument("--codecs", default="none,int8,int4", metavar="LIST", help="as qccl-perf's --codec (none,int8,int4)")
    measuring.add_argument("--smallest", type=size, default=8, metavar="BYTES",
                           help="leave out the bands that begin below it, at 8, 64, 64K, 4M or 64M (8)")
    measuring.add_argument("--largest", type=size, default=256 << 20, metavar="BYTES", help="largest size (256M)")
    measuring.add_argument("--rounds", type=int, default=3, metavar="N", help="rounds; at 1 Gbit/s, of sizes up to 1M (3)")
    measuring.add_argument("--again", action="store_true", help="also what is in the folder, calibrations among it")
    printing = actions.add_parser("table", help="print what has been measured", allow_abbrev=False)
    printing.add_argument("--csv", metavar="FILE", help="every cell in a line")
    doubting = actions.add_parser("wrong-rates", help="print what wrong rates would cost", allow_abbrev=False)
    for action in (printing, doubting):
        action.add_argument("--info", type=pathlib.Path, default=HERE.parents[1] / "build/perf/qccl-info", metavar="FILE")
    simulating = actions.add_parser("simulated", help="compare with what the simulator says", allow_abbrev=False)
    for action in (printing, doubting, simulating):
        action.add_argument("--wrong", action="store_true", help="print the cells that are not right")
    for action in (measuring, simulating):
        action.add_argument("--program", type=pathlib.Path, default=HERE.parents[1] / "build/perf/qccl-perf", metavar="FILE")
    for action in (measuring, printing, doubting, simulating):
        action.add_argument("--raw", type=pathlib.Path, required=True, metavar="FOLDER", help="qccl-perf's JSON files")
    return parser.parse_args()


def main():
    chosen = arguments()
    return {"measure": measure, "table": table, "wrong-rates": wrong_rates, "simulated": simulated}[chosen.action](chosen)


if __name__ == "__main__":
    sys.exit(main())
