"""What is summed, and what can be said of it beforehand: the ranks' vectors, sizes in words, bits of codecs on the wire."""
import array
import random
import re
import struct

SUFFIXES = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
BLOCK = 1 << 16  # values
# Layers of a network differ in the size of their gradients.
SCALES = (1.0, 0.01, 0.3, 0.001)


def parse_size(text):
    match = re.fullmatch(r"(\d+)([KMG]?)", text)
    size = int(match[1]) * SUFFIXES[match[2]] if match else 0
    if size < 4 or size % 4:
        raise ValueError(f"{text!r} is no size of a vector of fp32, such as 64K or 16M")
    return size


def size_text(size):
    for suffix in "GMK":
        if size % SUFFIXES[suffix] == 0:
            return f"{size // SUFFIXES[suffix]} {suffix}i"
    return str(size)


def write_vectors(folder, ranks, size):
    """RANK.npy for each rank, of `size` bytes, as gradients are: Gaussian, in layers of different scale. The same every time."""
    for rank in range(ranks):
        chance = random.Random(rank)
        values = [chance.gauss(0, 1) for _ in range(min(BLOCK, size // 4))]
        layers = [array.array("f", [scale * value for value in values]).tobytes() for scale in SCALES]
        header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({size // 4},), }}".ljust(117) + "\n"
        with open(folder / f"rank{rank}.npy", "wb") as file:
            file.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode())
            left = size
            while left:
                layer = layers[(size - left) // (BLOCK * 4) % len(layers)][:left]
                file.write(layer)
                left -= len(layer)
    return str(folder / "rank%r.npy")


def bits_of(codec):
    """Of a value on the wire, large vectors; lib/codec/WIRE.md. None for codecs whose chunks vary."""
    name, _, options = codec.partition(":")
    keys = dict(item.split("=") for item in options.split(",") if "=" in item)
    if keys.get("entropy") == "1":
        return None
    if name == "none":
        return 32
    if name in ("fp16", "bf16"):
        return 16
    if name in ("fp8e4m3", "fp8e5m2"):
        return 8
    if match := re.fullmatch(r"int(\d+)", name):
        return int(match[1]) + 16 / int(keys.get("block", 32))
    if match := re.fullmatch(r"mxfp(\d).*", name):
        return int(match[1]) + 8 / 32
    if name == "nvfp4":
        return 4 + 8 / 16 + 32 / int(keys.get("bucket", 1024))
    if name == "onebit":
        return 1 + 64 / int(keys.get("bucket", 512))
    if name == "terngrad":
        bucket = int(keys.get("bucket", 512))
        return (32 * -(-bucket // 20) + 32) / bucket
    if name in ("topk", "dgc"):
        return float(keys.get("ratio", 0.001)) * (32 + 16) + 32 / 65536
    if name == "dummy":
        return float(keys.get("ratio", 0.25)) * 32
    if name == "norm":
        return int(keys.get("bits", 8)) + 32 / int(keys.get("bucket", 512))
    if name == "minmax":
        bucket = keys.get("bucket", "512")
        return int(keys.get("bits", 8)) + (0 if bucket == "all" else 64 / int(bucket))
    return None


def split_codecs(text):
    """A list of codecs as qccl-perf takes it: an item with an equals sign and no name continues the one before."""
    found = []
    for item in text.split(","):
        if found and "=" in item and ":" not in item:
            found[-1] += "," + item
        else:
            found.append(item)
    return found
