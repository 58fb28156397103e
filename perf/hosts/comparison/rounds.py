"""Runs contenders in turns on one testbed: repetitions of all of them, the line between the hosts measured beside them, and
what each sum sends over the links. Gives numbers; words about them are somebody else's."""
import collections
import json
import pathlib
import tempfile

import testbed

from .contenders import Missing, last_line, middle

RING = pathlib.Path(testbed.__file__).resolve().parent / "tcp_ring.py"
# Sums of so many bytes in all are timed in each repetition, within these numbers of iterations.
TIMED_BYTES = 64 << 20
FEWEST, MOST = 3, 50
COUNTED_BYTES = 8 << 20  # likewise, to count what travels
RING_PATIENCE = 60
LINE_SECONDS = 2
MOST_FAILURES = 2  # turns; who fails as often is not tried again

Line = collections.namedtuple("Line", "mean slowest")  # bytes a second, each way


def iterations_for(size, whole=TIMED_BYTES, fewest=FEWEST):
    return max(fewest, min(MOST, whole // size))


def measure_line(bed, seconds):
    """What a plain ring of TCP streams carries on the hosts' links, all at once."""
    with tempfile.TemporaryDirectory(dir=bed.folder) as folder:
        words = ["/usr/bin/python3", RING, *(host.address for host in bed.hosts), "--seconds", seconds]
        with testbed.Job(bed, words, output=folder) as job:
            if job.wait(RING_PATIENCE) != 0:
                raise Missing(last_line((pathlib.Path(folder) / "0.err").read_text()))
        found = [json.loads((pathlib.Path(folder) / f"{host.index}.out").read_text()) for host in bed.hosts]
    speeds = [each["received_bytes"] / each["seconds"] for each in found]
    return Line(sum(speeds) / len(speeds), min(speeds))


class Rounds:
    """samples: {(label, size): [Sample...]}; failures: {label: [why...]}; sent: {(label, size): vectors that each host sent};
    lines: [Line...]."""

    def __init__(self, bed, contenders, sizes, tell):
        self.bed, self.contenders, self.sizes, self.tell = bed, contenders, sizes, tell
        self.samples, self.failures, self.sent, self.lines = collections.defaultdict(list), collections.defaultdict(list), {}, []
        self.turn_ = ""

    def present_(self, contender):
        return [label for label in contender.labels if len(self.failures[label]) < MOST_FAILURES]

    def run(self, repetitions):
        plan = [(size, iterations_for(size)) for size in self.sizes]
        for repetition in range(1, repetitions + 1):
            self.turn_ = f"turn {repetition} of {repetitions}"
            if len(self.bed.hosts) > 1:
                self.run_line_()
            for contender in self.contenders:
                if labels := self.present_(contender):
                    self.run_contender_(contender, labels, plan)

    def run_line_(self):
        self.tell(f"{self.turn_}: the line")
        try:
            self.lines.append(measure_line(self.bed, LINE_SECONDS))
        except Missing as reason:
            self.tell(f"no line: {reason}")

    def run_contender_(self, contender, labels, plan):
        self.tell(f"{self.turn_}: {labels[0].library} {labels[0].algorithm or ''}")
        try:
            for key, sample in contender.measure(labels, plan).items():
                self.samples[key].append(sample)
        except Missing as reason:
            self.tell(f"{labels[0].library} failed: {reason}")
            for label in labels:
                self.failures[label].append(str(reason))

    def count(self, sizes):
        """What each host's interface sends for one sum: the difference between starts with few and with many sums, so that
        connecting and checking do not count."""
        for contender in self.contenders:
            for size in sizes:
                for label in (label for label in self.present_(contender) if (label, size) in self.samples):
                    self.tell(f"bytes of {label.library} {label.codec} {size}")
                    try:
                        self.count_(contender, label, size)
                    except Missing as reason:
                        self.tell(f"no count: {reason}")
                        self.failures[label].append(str(reason))

    def count_(self, contender, label, size):
        few, many = 1, 1 + iterations_for(size, COUNTED_BYTES, 2)
        counts = []
        for iterations in (few, many):
            before = self.bed.counters()
            contender.measure([label], [(size, iterations)])
            counts.append([now.sent - then.sent for now, then in zip(self.bed.counters(), before)])
        calls = contender.calls(many) - contender.calls(few)
        self.sent[label, size] = [(last - first) / calls / size for first, last in zip(*counts)]

    def time_us(self, label, size):
        """(median, least, most) of the repetitions' medians; None where there is nothing."""
        times = [sample.time_us for sample in self.samples.get((label, size), [])]
        return (middle(times), min(times), max(times)) if times else None

    def line(self):
        """Bytes a second, each way; None on one host."""
        return middle([line.mean for line in self.lines]) if self.lines else None
