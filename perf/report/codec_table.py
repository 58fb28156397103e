#!/usr/bin/python3
"""What codecs cost and lose: a row for each codec, set of data and number of ranks, as a table, a CSV file and a picture.

bits: of a value on the wire, header included. one encode: NMSE of the ranks' vectors when each is encoded once. measured: NMSE of the sum
of all ranks by that algorithm. predicted: what the planner expects of independent Gaussian values. figures: what it expects if it is told
of these data how much one encode of the ranks' vectors loses, how much one encode of the sum, how strong the vectors are beside the sum,
and by direct and tree how much of their squares ranks have where they sum themselves (sample= of qcclExplain). expected: what is expected
if the data are known, of which an eighth and at least 32768 values are taken (--input of qccl-info explain). bias: of codecs with noise,
the largest mean error of a value over --trials encodes with different seeds, in standard deviations of that mean; about 4 of a few hundred
values are normal. GB/s: of unencoded values on one core, between memory and memory, to encode and to decode and add, beside memcpy in the
same run.

Data: independent values of a Gaussian (gauss) and of Student's t with 3 degrees of freedom (student); Gaussian values whose strength
differs from block to block (blocks); nine of ten values zero (sparse); ranks that resemble each other, with a correlation of 0.9
(alike). --data adds vectors of files: NAME=DIR/rank%r.npy, of as many ranks as there are files.
"""
import argparse
import collections
import csv
import itertools
import json
import math
import pathlib
import subprocess
import sys
import tempfile

import numpy

sys.dont_write_bytecode = True
HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(HERE.parent / "hosts"))
from comparison import picture, vectors as vector_words  # noqa: E402

CODECS = ("fp16", "bf16", "fp8e4m3", "fp8e5m2", "int8", "int6", "int5", "int4", "int3", "int2", "minmax", "minmax:bits=4", "mxfp8e4m3",
          "mxfp8e4m3:scale=ocp", "mxfp6e2m3", "mxfp4", "nvfp4", "onebit", "terngrad", "topk:ratio=0.01", "int4:round=stochastic",
          "int8:round=dither", "int6:round=dither", "int4:round=dither", "minmax:round=dither", "minmax:bits=4,round=dither",
          "bf16:round=stochastic")
ALGORITHMS = ("direct", "ring", "tree")
Row = collections.namedtuple("Row", "data ranks codec bits one_encode algorithm measured predicted figures expected bias encode decode_add memcpy")
COLUMNS = "{:12} {:>5} {:24} {:>6} {:>10}  {:9} {:>10} {:>10} {:>10} {:>10} {:>6} {:>7} {:>7} {:>7}"
TRIED_VALUES = 256  # whose errors are averaged over the trials


def names(text):
    return tuple(text.split(","))


def numbers(text):
    found = [int(word) for word in text.split(",")]
    if min(found) < 2:
        raise argparse.ArgumentTypeError("sums have two ranks or more")
    return found


def data_files(text):
    name, equals, pattern = text.partition("=")
    if not name or not equals or "%r" not in pattern:
        raise argparse.ArgumentTypeError(f"{text!r} is no NAME=DIR/rank%r.npy")
    return name, pattern


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--codecs", type=vector_words.split_codecs, default=CODECS, metavar="LIST", help=f"({', '.join(CODECS)})")
    parser.add_argument("--ranks", type=numbers, default=[4, 16, 64], metavar="LIST", help="of the synthetic data (4,16,64)")
    parser.add_argument("--algorithms", type=names, default=ALGORITHMS, metavar="LIST", help="of all-reduces (direct,ring,tree)")
    parser.add_argument("--values", type=int, default=1 << 16, metavar="N", help="of each rank (65536)")
    parser.add_argument("--trials", type=int, default=10000, metavar="N", help="for the bias (10000); 0: none")
    parser.add_argument("--data", type=data_files, action="append", default=[], metavar="NAME=PATTERN", help="files of the ranks; repeatable")
    parser.add_argument("--package", type=pathlib.Path, default=ROOT / "build/bindings/python", metavar="FOLDER",
                        help="where the package qccl lies (build/bindings/python)")
    parser.add_argument("--program", type=pathlib.Path, default=ROOT / "build/perf/qccl-perf", metavar="FILE",
                        help="qccl-perf, for the speeds; qccl-info lies beside it (build/perf/qccl-perf)")
    parser.add_argument("--output", metavar="PREFIX", default="codecs", help="PREFIX.csv and PREFIX.svg (codecs)")
    chosen = parser.parse_args()
    if chosen.values < TRIED_VALUES:
        parser.error(f"--values: at least {TRIED_VALUES} are needed")
    return chosen


# ---- Data

def synthetic(name, ranks, values):
    """A vector of fp32 for each rank."""
    common = numpy.random.default_rng(999).standard_normal(values)
    vectors = []
    for rank in range(ranks):
        generator = numpy.random.default_rng([rank, 7])
        own = generator.standard_normal(values)
        if name == "student":
            own = generator.standard_t(3, values)
        elif name == "blocks":
            own *= numpy.repeat(numpy.exp(1.5 * generator.standard_normal(-(-values // 32))), 32)[:values]
        elif name == "sparse":
            own *= generator.random(values) < 0.1
        elif name == "alike":
            own = math.sqrt(0.9) * common + math.sqrt(0.1) * own
        vectors.append(own.astype(numpy.float32))
    return vectors


SYNTHETIC = ("gauss", "student", "blocks", "sparse", "alike")


def from_files(pattern):
    vectors = []
    for rank in itertools.count():
        path = pathlib.Path(pattern.replace("%r", str(rank)))
        if not path.exists():
            break
        vectors.append(numpy.load(path).astype(numpy.float32).ravel())
    if len(vectors) < 2 or len({vector.size for vector in vectors}) != 1:
        sys.exit(f"codec_table.py: {pattern} names no files of two ranks or more with equally many values")
    return vectors


# ---- Measurements

def with_key(spec, key):
    return f"{spec}{',' if ':' in spec else ':'}{key}"


def at_any_size(spec):
    return spec if "min=" in spec else with_key(spec, "min=0")


def squares(vectors):
    return sum(float(numpy.square(vector, dtype=float).sum()) for vector in vectors)


class Meter:
    """What one set of vectors shows about codecs."""

    def __init__(self, qccl, vectors):
        self.qccl, self.vectors = qccl, vectors
        self.exact = sum(vector.astype(float) for vector in vectors)
        self.power_ratio = squares(vectors) / squares([self.exact])

    def one_encode(self, spec, vectors=None):
        """(bits of a value, NMSE)"""
        codec, vectors = self.qccl.Codec(spec), vectors or self.vectors
        coded = [codec.encode(vector) for vector in vectors]
        errors = [codec.decode(data, like=vector).astype(float) - vector for data, vector in zip(coded, vectors)]
        return 8 * coded[0].size / vectors[0].size, squares(errors) / squares(vectors)

    def own_share(self, algorithm):
        """The part of the vectors' squares that ranks have where they sum themselves; None: it says little by this algorithm."""
        ranks = len(self.vectors)
        if algorithm == "tree":
            return squares(self.vectors[:1]) / squares(self.vectors)
        if algorithm == "direct":
            return squares(numpy.array_split(vector, ranks)[rank] for rank, vector in enumerate(self.vectors)) / squares(self.vectors)
        return None

    def sample(self, spec, algorithm):
        """What explain takes as sample=."""
        of_sum = self.one_encode(spec, [self.exact.astype(numpy.float32)])[1]
        own = self.own_share(algorithm)
        return f"{self.one_encode(spec)[1]:.9g}/{of_sum:.9g}/{self.power_ratio:.9g}" + ("" if own is None else f"/{own:.9g}")

    def explained(self, comm, spec, algorithm, sample):
        """(NMSE that is predicted, NMSE that is expected by the figures)"""
        told = comm.explain(f"all_reduce count={self.exact.size} type=float codec={spec} algorithm={algorithm} sample={sample}", format="json")
        found, = ((row["nmse_predicted"], row["nmse_expected"]) for row in told["candidates"] if row["verdict"] == "chosen")
        return found

    def sums(self, spec, algorithm):
        """(NMSE of the sum, the one that is predicted, the one that is expected by the figures)"""
        coded, sample = at_any_size(spec), self.sample(spec, algorithm)

        def body(comm):
            predicted = self.explained(comm, coded, algorithm, sample)
            return comm.all_reduce(self.vectors[comm.rank].copy(), codec=coded, algorithm=algorithm), predicted

        results = self.qccl.run_threads(len(self.vectors), body)
        if any(sum_.tobytes() != results[0][0].tobytes() for sum_, _ in results):
            sys.exit(f"codec_table.py: the sums of the ranks differ ({spec}, {algorithm})")
        return squares([results[0][0] - self.exact]) / squares([self.exact]), *results[0][1]

    def bias(self, spec, trials):
        """The largest mean error, in standard deviations of the mean; None: the codec draws no noise."""
        draws = "round=nearest" not in spec if spec.startswith("norm") else spec.startswith("terngrad") or "round=stochastic" in spec or "round=dither" in spec
        if trials == 0 or not draws:
            return None
        values = self.vectors[0][:TRIED_VALUES].copy()
        total, squares = numpy.zeros(values.size), numpy.zeros(values.size)
        for seed in range(trials):
            with self.qccl.Codec(with_key(spec, f"seed={seed}")) as codec:
                error = codec.decode(codec.encode(values), like=values).astype(float) - values
            total += error
            squares += error * error
        mean = total / trials
        deviation = numpy.sqrt(numpy.maximum(squares / trials - mean * mean, 0) / trials)
        return float(numpy.max(numpy.abs(mean[deviation > 0]) / deviation[deviation > 0], initial=0))


def speeds_of(program, codecs):
    """{codec: (encode, decode-add, memcpy)} in GB/s, between memory and memory."""
    done = subprocess.run([program, "codec", "--codec", ",".join(codecs), "--json", "-"], stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        sys.exit(1)
    rows = [row for row in json.loads(done.stdout)["rows"] if row["where"] == "stream"]
    by_codec = collections.defaultdict(dict)
    for row, codec in zip(rows, (codec for codec in codecs for _ in range(len(rows) // len(codecs)))):
        by_codec[codec][row["operation"]] = row["GBps"]
    return {codec: (found["encode"], found["decode_add"], found["memcpy"]) for codec, found in by_codec.items()}


def expected_errors(program, vectors, codecs, algorithms):
    """{(codec, algorithm): NMSE that is expected of the sum by a sample of the vectors}"""
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        for rank, vector in enumerate(vectors):
            numpy.save(pathlib.Path(folder) / f"rank{rank}.npy", vector)
        for algorithm in algorithms:
            command = [program, "explain", "all_reduce", "--input", f"{folder}/rank%r.npy", "--algo", algorithm, "--json", "-",
                       "--codec", ",".join(at_any_size(spec) for spec in codecs)]
            done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
            if done.returncode != 0:
                sys.exit(1)
            for spec, row in zip(codecs, json.loads(done.stdout)["rows"]):
                used, = (each for each in row["candidates"] if each["verdict"] == "chosen")
                found[spec, algorithm] = used.get("nmse_expected")
    return found


def measure(chosen, qccl, tell):
    sets = [(name, from_files(pattern)) for name, pattern in chosen.data]
    sets[:0] = [(name, synthetic(name, ranks, chosen.values)) for name in SYNTHETIC for ranks in chosen.ranks]
    speeds = speeds_of(chosen.program, chosen.codecs)
    for name, vectors in sets:
        tell(f"{name}, {len(vectors)} ranks")
        meter = Meter(qccl, vectors)
        expected = expected_errors(chosen.program.with_name("qccl-info"), vectors, chosen.codecs, chosen.algorithms)
        for spec in chosen.codecs:
            bits, once = meter.one_encode(spec)
            bias = meter.bias(spec, chosen.trials) if len(vectors) == min(chosen.ranks) else None
            for algorithm in chosen.algorithms:
                sums = meter.sums(spec, algorithm)
                yield Row(name, len(vectors), spec, bits, once, algorithm, *sums, expected[spec, algorithm], bias, *speeds[spec])


# ---- Output

def shown(value):
    return "" if value is None else f"{value:.2f}" if 0.1 <= abs(value) < 1000 else f"{value:.2e}"


def write_csv(path, rows):
    with open(path, "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(Row._fields)
        writer.writerows([["" if value is None else f"{value:.6g}" if isinstance(value, float) else value for value in row] for row in rows])


class Axis:
    """Logarithmic, from a place to another one."""

    def __init__(self, values, start, end):
        self.low, self.high, self.start, self.end = math.log10(min(values)), math.log10(max(values)), start, end

    def __call__(self, value):
        share = (math.log10(value) - self.low) / (self.high - self.low or 1)
        return self.start + share * (self.end - self.start)


def draw(path, rows):
    """Bits against the NMSE of one encode, a colour for each set of data."""
    points = {(row.data, row.codec): (row.bits, row.one_encode) for row in rows if row.one_encode > 0}
    x = Axis([bits for bits, _ in points.values()], picture.LEFT, picture.WIDTH - picture.RIGHT)
    y = Axis([error for _, error in points.values()], picture.HEIGHT - picture.BOTTOM, picture.TOP)
    parts = [picture.text((picture.LEFT + picture.WIDTH - picture.RIGHT) / 2, picture.HEIGHT - 20, "bits of a value", "middle"),
             picture.text(0, 0, "NMSE of one encode", "middle", f'transform="translate(24 {picture.HEIGHT / 2}) rotate(-90)"')]
    for bits in (0.5, 1, 2, 4, 8, 16):
        if x.low <= math.log10(bits) <= x.high:
            parts += [picture.line(x(bits), picture.TOP, x(bits), picture.HEIGHT - picture.BOTTOM, picture.GRID),
                      picture.text(x(bits), picture.HEIGHT - picture.BOTTOM + 20, f"{bits:g}", "middle")]
    for power in range(math.ceil(y.low), math.floor(y.high) + 1):
        parts += [picture.line(picture.LEFT, y(10.0 ** power), picture.WIDTH - picture.RIGHT, y(10.0 ** power), picture.GRID),
                  picture.text(picture.LEFT - 8, y(10.0 ** power) + 4, f"1e{power}", "end")]
    for number, data in enumerate(dict.fromkeys(data for data, _ in points)):
        colour, level = picture.COLOURS[number % len(picture.COLOURS)], picture.TOP + 10 + 22 * number
        parts += [f'<circle cx="{picture.WIDTH - picture.RIGHT + 30}" cy="{level}" r="4" fill="{colour}"/>',
                  picture.text(picture.WIDTH - picture.RIGHT + 44, level + 4, data)]
        for (of, codec), (bits, error) in points.items():
            if of == data:
                parts.append(f'<circle cx="{x(bits):.1f}" cy="{y(error):.1f}" r="4" fill="{colour}"><title>{codec}, {data}</title></circle>')
                if number == 0:
                    parts.append(picture.text(x(bits) + 7, y(error) + 4, codec, more='font-size="10"'))
    picture.write_svg(path, "What codecs lose in one encode", parts, picture.HEIGHT)


def main():
    chosen = arguments()
    sys.path.insert(0, str(chosen.package.resolve()))
    import qccl  # noqa: PLC0415

    rows = []
    print(COLUMNS.format("data", "ranks", "codec", "bits", "one encode", "algorithm", "measured", "predicted", "figures", "expected", "bias", "encode", "add", "memcpy"))
    for row in measure(chosen, qccl, lambda words: print(words, file=sys.stderr, flush=True)):
        rows.append(row)
        print(COLUMNS.format(*row[:3], shown(row.bits), shown(row.one_encode), row.algorithm, *map(shown, row[6:])), flush=True)
    write_csv(f"{chosen.output}.csv", rows)
    draw(f"{chosen.output}.svg", rows)
    print(f"# written: {chosen.output}.csv {chosen.output}.svg")


if __name__ == "__main__":
    main()
