"""What the tests of the tools share: running them, reading their tables, and what they should say. Does without NumPy."""
import json
import os
import subprocess
import tempfile


def run(command, expect=0, timeout=300, env=None, text_in=None):
    """Runs a tool; the exit status must be `expect` (None: any but 0)."""
    done = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          text=True, timeout=timeout, env={**os.environ, **(env or {})}, input=text_in)
    right = done.returncode != 0 if expect is None else done.returncode == expect
    assert right, f"{command}: exit {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done


def check_loss_is_told(program, *commands):
    """A disk that is full when output reaches it makes the program fail, and say so once."""
    for command in commands:
        with open("/dev/full", "w") as full:
            done = subprocess.run([program, *command], stdout=full, stderr=subprocess.PIPE, text=True, timeout=300)
        said = done.stderr.count("cannot write standard output: No space left on device")
        assert (done.returncode, said) == (1, 1), f"{command}: exit {done.returncode}\n{done.stderr}"


def children(pid):
    """Of a process, in the order in which they were started."""
    found = []
    for entry in os.listdir("/proc"):
        try:
            with open(f"/proc/{int(entry)}/stat") as file:
                parent = int(file.read().rpartition(")")[2].split()[1])
        except (ValueError, OSError):  # no process, or none any more
            continue
        if parent == pid:
            found.append(int(entry))
    return sorted(found)


def rows_of(command, **options):
    """The rows of --json."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "rows.json")
        run(list(command) + ["--json", path], **options)
        with open(path) as file:
            return json.load(file)["rows"]


HEADER_BYTES = 64


def round_up(value, step):
    return -(-value // step) * step


def payload_bytes(codec, count, type_bytes):
    """Of one chunk, as lib/codec/WIRE.md lays it out: planes in groups of 32 values, then scales."""
    if codec in ("none", "lossless"):  # on one host nothing is packed
        return count * type_bytes
    if codec == "bound":  # words of the accumulator's type, and the step
        return count * max(type_bytes, 4) + 4 if count else 0
    if codec in ("fp16", "bf16"):
        return count * 2
    if codec in ("fp8e4m3", "fp8e5m2"):
        return count
    if codec in ("topk", "dgc"):
        kept = -(-count // 1000)
        indices = round_up(-(-count // 65536) * 4, 16)
        return round_up(indices + kept * 2, 16) + kept * type_bytes
    if codec == "dummy":
        return -(-count // 4) * type_bytes
    if codec == "terngrad":
        digits = count // 512 * 104 + -(-(count % 512) // 20) * 4
        return round_up(digits, 16) + -(-count // 512) * 4 if count else 0
    bits = {"int12": 12, "int10": 10, "int8": 8, "int6": 6, "int5": 5, "int4": 4, "int3": 3, "int2": 2, "minmax": 8,
            "mxfp8e4m3": 8, "mxfp6e2m3": 6, "mxfp4": 4, "nvfp4": 4, "onebit": 1, "norm": 8, "tbq": 2}[codec]
    scales = [] if codec == "tbq" else [(512, 8)] if codec in ("minmax", "onebit") else [(32, 1)] if codec.startswith("mx") else \
        [(16, 1), (1024, 4)] if codec == "nvfp4" else [(512, 4)] if codec == "norm" else [(32, 2)]
    end = 0
    for width in (8, 4, 2, 1):
        if bits & width:
            end = round_up(end, 16) + -(-count // 32) * 4 * width
    for block, scale in scales:
        end = round_up(end, 16) + -(-count // block) * scale
    return end if count else 0


def chunk_counts(count, ranks, codec):
    """Elements of each chunk of an all-reduce, cut at the codec's grain."""
    block = {"none": 1, "lossless": 1, "dummy": 1, "tbq": 1, "bound": 1, "topk": 1, "dgc": 1, "fp16": 1, "bf16": 1, "fp8e4m3": 1, "fp8e5m2": 1, "minmax": 512,
             "nvfp4": 1024, "onebit": 512, "terngrad": 512, "norm": 512}.get(codec, 32)
    grain = max(block, 64)  # blocks are powers of two here
    length = round_up(-(-count // ranks), grain)
    return [max(0, min(count, (c + 1) * length) - min(count, c * length)) for c in range(ranks)]


def most_sent(algorithm, counts, codec, type_bytes):
    """The most bytes that a rank sends in an all-reduce of one segment, headers included."""
    sizes = [HEADER_BYTES + payload_bytes(codec, count, type_bytes) for count in counts]
    ranks = len(sizes)
    if algorithm == "direct":  # every other chunk to its owner, the own one to everybody
        return max(sum(sizes) - own + (ranks - 1) * own for own in sizes)
    # ring: a rank forwards every chunk but one while sums are formed, and every chunk but one again
    sent = []
    for rank in range(ranks):
        summing = sum(sizes) - sizes[(rank + 1) % ranks]
        spreading = sum(sizes) - sizes[(rank + 2) % ranks]
        sent.append(summing + spreading)
    return max(sent)
