#!/usr/bin/python3
"""Trains examples/train_digits.py on hosts that are made for it on this machine (tests/support/testbed/hosts), one rank on each: alone,
with DistributedDataParallel over Gloo, and with QCCL's communication hook and several codecs. Prints a table, and writes a CSV file
and a picture.

All see the same mini-batches and the same number of steps, take turns within one run, and train with one thread for each rank.
Each turn has other first weights and mini-batches; accuracy is the mean of the turns, on digits that were not trained with, and
times are medians. Every lossy codec has error feedback. A training whose ranks end with different weights has failed. One that
fails is made once more, and the table says so. Ratios mean something within one run only.

points: of accuracy, above Gloo's on as many hosts. x gloo: how many times as many steps a second. sent: by rank 0, for one step;
Gloo's is that of a lossless ring, and not counted.
"""
import argparse
import collections
import contextlib
import csv
import json
import os
import pathlib
import subprocess
import sys
import time

sys.dont_write_bytecode = True
HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(HERE), str(ROOT / "tests" / "support")]
from comparison import contenders, picture, vectors  # noqa: E402
from testbed import Testbed, run_command  # noqa: E402

GLOO = "gloo"
Contender = collections.namedtuple("Contender", "ranks codec")
Row = collections.namedtuple("Row", "contender accuracy points seconds steps_per_second times_gloo sent_per_step turns")
COLUMNS = ("ranks", "gradients", "accuracy", "points", "time (s)", "steps/s", "x gloo", "sent (MB)")
WIDTHS = (5, 14, 8, 6, 8, 8, 6, 9)


def count(text):
    if not text.isdigit() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is no number above 0")
    return int(text)


def counts(text):
    return [count(word) for word in text.split(",")]


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hosts", type=counts, default=[2, 4], metavar="LIST", help="numbers of hosts (2,4)")
    parser.add_argument("--rate", default="1gbit", help="of each link, each way, as tc has it; none: no limit (1gbit)")
    parser.add_argument("--codecs", type=vectors.split_codecs, default=["none", "fp8e4m3", "fp16", "int8", "int4"], metavar="LIST",
                        help="of QCCL (none,fp8e4m3,fp16,int8,int4)")
    parser.add_argument("--steps", type=count, default=150, metavar="N", help="of each training (150)")
    parser.add_argument("--batch", type=count, default=32, metavar="N", help="digits of a mini-batch, of all ranks together (32)")
    parser.add_argument("--width", type=count, default=8000, metavar="N",
                        help="of the hidden layer, which has 1024 x N weights; from 8192 on glibc maps a gradient's pages anew in each step (8000)")
    parser.add_argument("--turns", type=count, default=3, metavar="N", help="of each contender (3)")
    parser.add_argument("--env", action="append", default=[], metavar="K=V", help="set for all ranks; repeatable")
    parser.add_argument("--python", metavar="FILE", help="an interpreter with torch and scikit-learn")
    parser.add_argument("--package", type=pathlib.Path, default=ROOT / "build/bindings/python", metavar="FOLDER",
                        help="where the package qccl lies (build/bindings/python)")
    parser.add_argument("--patience", type=float, default=900, metavar="SECONDS", help="for each training (900)")
    parser.add_argument("--output", metavar="PREFIX", help="PREFIX.csv and PREFIX.svg (training-RATE)")
    chosen = parser.parse_args()
    chosen.output = chosen.output or f"training-{chosen.rate}"
    if bad := [text for text in chosen.env if "=" not in text]:
        parser.error(f"--env {bad[0]}: is no KEY=VALUE")
    if 1 in chosen.hosts:
        parser.error("--hosts: one host has nobody to talk to; it always trains alone, for comparison")
    if bad := [hosts for hosts in chosen.hosts if chosen.batch % hosts]:
        parser.error(f"--batch: {bad[0]} hosts cannot share {chosen.batch} digits equally")
    return chosen


def name_of(contender):
    if contender.ranks == 1:
        return "alone"
    return contender.codec if contender.codec == GLOO else f"qccl {contender.codec}"


class Trainings:
    """results: {contender: {turn: what train_digits.py writes}}; failures: {contender: why its first attempts failed}; has_lost:
    whether a second attempt has failed, too."""

    def __init__(self, chosen, beds, tell):
        self.chosen, self.beds, self.tell = chosen, beds, tell
        self.contenders = [Contender(1, GLOO)] + [Contender(ranks, codec) for ranks in chosen.hosts for codec in (GLOO, *chosen.codecs)]
        self.results, self.failures, self.has_lost = collections.defaultdict(dict), {}, False
        self.python = contenders.python_with_gloo(chosen.python)
        # Links made by tc do not say their rate, as a NIC would; without it no call would be encoded.
        told = {} if chosen.rate == "none" else {"QCCL_LINK_RATE": chosen.rate}
        paths = os.pathsep.join(filter(None, (str(chosen.package.resolve()), os.environ.get("PYTHONPATH"))))
        self.env = {"GLOO_SOCKET_IFNAME": "eth0", "OMP_NUM_THREADS": "1", "PYTHONPATH": paths, **told,
                    **dict(text.split("=", 1) for text in chosen.env)}
        self.check_packages_()

    def check_packages_(self):
        asked = "import sys; from importlib.util import find_spec; sys.exit(' and '.join(n for n in ('sklearn', 'qccl') if not find_spec(n)) or 0)"
        done = subprocess.run([self.python, "-c", asked], env={**os.environ, **self.env}, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise contenders.Missing(f"{self.python} lacks {contenders.last_line(done.stderr)}; --package names the folder of qccl")

    def run(self):
        for turn in range(self.chosen.turns):
            for contender in self.contenders:
                self.tell(f"turn {turn + 1} of {self.chosen.turns}: {contender.ranks} x {name_of(contender)}")
                if not (self.attempt_(contender, turn) or self.attempt_(contender, turn)):
                    self.has_lost = True

    def attempt_(self, contender, turn):
        try:
            result = self.train_(contender, seed=turn)
        except contenders.Missing as reason:
            self.tell(f"failed: {reason}")
            self.failures[contender] = str(reason)
            return False
        self.results[contender][turn] = result
        self.tell(f"accuracy {result['accuracy']:.2%}, {result['steps_per_second']:.2f} steps/s")
        return True

    def train_(self, contender, seed):
        chosen, bed = self.chosen, self.beds[contender.ranks]
        path = bed.folder / "training.json"
        path.unlink(missing_ok=True)
        feedback = [] if contender.codec in (GLOO, "none") else ["--error-feedback"]
        words = [self.python, ROOT / "examples" / "train_digits.py", "--codec", contender.codec, *feedback, "--steps", chosen.steps,
                 "--batch", chosen.batch, "--width", chosen.width, "--seed", seed, "--json", path]
        contenders.run_job(bed, words, 1, self.env, chosen.patience)
        result = json.loads(path.read_text())
        if result["ranks"] != contender.ranks or result["steps"] != chosen.steps:
            raise contenders.Missing(f"{result['ranks']} ranks trained for {result['steps']} steps")
        return result

    def rows(self):
        return [self.row_(contender, self.results[contender]) for contender in self.contenders if self.results.get(contender)]

    def row_(self, contender, results):
        base = self.results.get(Contender(contender.ranks, GLOO), {}) if contender.ranks > 1 else {}
        # The runs of a contender differ in first weights and mini-batches, so those are compared that both have.
        both = sorted(set(results) & set(base))
        middle_of = lambda of, turns, key: contenders.middle([of[turn][key] for turn in turns])
        mean_of = lambda of, turns: sum(of[turn]["accuracy"] for turn in turns) / len(turns)
        return Row(contender, mean_of(results, results), 100 * (mean_of(results, both) - mean_of(base, both)) if both else None,
                   middle_of(results, results, "seconds"), middle_of(results, results, "steps_per_second"),
                   middle_of(results, both, "steps_per_second") / middle_of(base, both, "steps_per_second") if both else None,
                   middle_of(results, results, "sent_bytes") / self.chosen.steps, len(results))


def cells_of(row):
    shown = lambda value, form: "-" if value is None else format(value, form)
    return (str(row.contender.ranks), name_of(row.contender), f"{row.accuracy:.2%}", shown(row.points, "+.2f"), f"{row.seconds:.1f}",
            f"{row.steps_per_second:.2f}", shown(row.times_gloo, ".2f"), f"{row.sent_per_step / 1e6:.2f}")


def print_table(chosen, trainings, rows, out):
    parameters = next(result for of_turns in trainings.results.values() for result in of_turns.values())["parameters"]
    print(f"# links of {chosen.rate}, {parameters} parameters, {chosen.steps} steps of {chosen.batch} digits, {chosen.turns} turns, "
          f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, {time.strftime('%Y-%m-%d %H:%M')}", file=out)
    ranks = None
    for cells in (COLUMNS, *map(cells_of, rows)):
        if ranks not in (None, cells[0]):
            print(file=out)
        ranks = cells[0]
        print("  ".join(cell.ljust(width) if index == 1 else cell.rjust(width) for index, (cell, width) in enumerate(zip(cells, WIDTHS))), file=out)
    for contender, reason in trainings.failures.items():
        print(f"# {contender.ranks} x {name_of(contender)}: {reason}", file=out)


def write_csv(path, chosen, rows):
    with open(path, "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["rate", "steps", "batch", "width", "turns", "ranks", "gradients", "accuracy", "points_above_gloo", "seconds",
                         "steps_per_second", "times_gloo", "sent_bytes_per_step"])
        for row in rows:
            numbers = (row.accuracy, row.points, row.seconds, row.steps_per_second, row.times_gloo, row.sent_per_step)
            writer.writerow([chosen.rate, chosen.steps, chosen.batch, chosen.width, row.turns, row.contender.ranks, name_of(row.contender),
                             *("" if value is None else f"{value:.6g}" for value in numbers)])


def train(chosen):
    begin = time.monotonic()
    tell = lambda text: print(f"[{time.monotonic() - begin:6.0f} s] {text}", file=sys.stderr, flush=True)
    with contextlib.ExitStack() as stack:
        rate = None if chosen.rate == "none" else chosen.rate
        beds = {hosts: stack.enter_context(Testbed(hosts, rate)) for hosts in (1, *chosen.hosts)}
        try:
            trainings = Trainings(chosen, beds, tell)
        except contenders.Missing as reason:
            print(f"training_table.py: {reason}", file=sys.stderr)
            return 1
        trainings.run()
    rows = trainings.rows()
    if not rows:
        return 1
    print_table(chosen, trainings, rows, sys.stdout)
    write_csv(f"{chosen.output}.csv", chosen, rows)
    bars = [(f"{row.contender.ranks}x {name_of(row.contender)}", row.steps_per_second, f"{row.steps_per_second:.2f} steps/s, {row.accuracy:.1%}")
            for row in rows]
    picture.write_bars(f"{chosen.output}.svg", f"Training of train_digits.py, links of {chosen.rate}: steps per second and accuracy", bars)
    print(f"# written: {chosen.output}.csv {chosen.output}.svg")
    return 1 if trainings.has_lost else 0


if __name__ == "__main__":
    sys.exit(run_command("training_table.py", lambda: train(arguments())))
