"""The codec `bound`, written from lib/codec/WIRE.md alone, as wire_decoder.py is: its grid, and its packed blocks."""

import struct

import numpy as np

from wire_packing import SEGMENT, Bytes, Reader, need, padded, read_stream, write_stream

RELATIVE, ENTROPY = 64, 128
BLOCK, LARGEST, RAW, MOST_WIDTH, MOST_SYMBOL_WIDTH = 32, 32767, 255, 16, 8
FLT_MIN, FLT_MAX = np.float32(2.0**-126), np.float32(2.0**128 - 2.0**104)


def bound_of(header):
    return np.array(header.bucket & 0x7FFFFFFF, "u4").view("f4")[()]


def is_pointwise(header):
    return header.bucket >> 31 == 1


class Points:
    """The grid of a pointwise bound: places of numbers, in integers."""

    def __init__(self, header, value_bytes):
        self.fraction = 52 if value_bytes == 8 else 23
        self.unsigned = f"u{value_bytes}"
        self.sign = 8 * value_bytes - 1
        self.shift = self.fraction + int(np.frexp(np.float64(bound_of(header)))[1])  # f = -floor(log2 E) - 1
        self.infinity = ((1 << (self.sign - self.fraction)) - 1) << self.fraction

    def split(self, words):
        bits = words.view(self.unsigned)
        return (bits & np.array((1 << self.sign) - 1, bits.dtype)).astype(np.int64), (bits >> np.array(self.sign, bits.dtype)).astype(np.int64)

    def join(self, number, sign):
        bits = number.astype(self.unsigned) | sign.astype(self.unsigned) << np.array(self.sign, self.unsigned)
        return bits.view(self.unsigned.replace("u", "f"))

    def rounded(self, words):
        number, sign = self.split(words)
        place, rest = number >> self.shift, number & ((1 << self.shift) - 1)
        half = 1 << (self.shift - 1)
        place += (rest > half) | (rest == half) & (place & 1 == 1)
        is_near = (number >= 1 << self.fraction) & (number < self.infinity) & (place << self.shift < self.infinity)
        return np.where(is_near, self.join(place << self.shift, sign), words)

    def codes(self, block):
        """Codes and base of a block; None if a value has no code."""
        number, sign = self.split(block)
        place = number >> self.shift
        is_number = (number >= 1 << self.fraction) & (number < self.infinity) & (place << self.shift == number)
        if not (is_number | (number == 0)).all():
            return None, 0
        base = int(place[is_number].min()) if is_number.any() else 0
        distance = np.where(is_number, place - base + 1, 0)
        return (None if (distance > LARGEST).any() else 2 * distance + sign), base

    def values(self, codes, base):
        distance = codes >> 1
        place = np.where(distance > 0, base + distance - 1, 0)
        number = place << self.shift
        need(((distance == 0) | (number >= 1 << self.fraction) & (number < self.infinity)).all(), "place")
        return self.join(number, codes & 1)


def step_of(bound):
    if not 2.0**-120 <= bound <= 2.0**120:
        return np.float32(0)
    return np.array(np.array(np.float32(bound * np.float32(1.9921875)), "f4").view("u4") & 0xFFFF0000, "u4").view("f4")[()]


def is_step(step):
    bits = int(np.array(step, "f4").view("u4"))
    return bits == 0 or 0x03FF0000 <= bits <= 0x7BFF0000 and bits & 0xFFFF == 0


def range_of(values, t):
    """As fp32; NaN if there is none."""
    lo, hi = values.min(), values.max()
    if not np.isfinite(values).all() or not np.isfinite(np.float32(lo)) or not np.isfinite(np.float32(hi)):
        return np.float32(np.nan)
    r = np.float32(t(hi) - t(lo))
    return np.float32(0) if r < FLT_MIN else min(r, FLT_MAX)


def multiples(values, step):
    t = values.dtype.type
    inverse = t(0) if step == 0 else t(1) / t(step)
    q = np.rint(values * inverse) + t(0)
    return q, q * t(step)


def encode(header, values, value_bytes):
    t = np.float64 if value_bytes == 8 else np.float32
    with np.errstate(all="ignore"):
        x = values.astype(t)
        bound = bound_of(header)
        if is_pointwise(header):
            words = Points(header, value_bytes).rounded(x)
            words[np.isnan(words)] = np.nan
            return words.astype(f"<f{value_bytes}").tobytes()
        if header.flags & RELATIVE:
            if not len(x):
                return b""
            bound = np.float32(bound * range_of(x, t))
        step = step_of(bound)
        q, y = multiples(x, step)
        is_near = (np.abs(q) <= LARGEST) & (np.abs(x - y) <= t(step) * t(257 / 512))
        words = np.where(is_near, y, x)
        words[np.isnan(words)] = np.nan
    return words.astype(f"<f{value_bytes}").tobytes() + (np.float32(step).tobytes() if header.flags & RELATIVE else b"")


def step_in(header, payload):
    return np.frombuffer(payload[-4:], "<f4")[0] if header.flags & RELATIVE else step_of(bound_of(header))


def coded_blocks(words, step, value_bytes, points):
    """Of each block its words, its codes (None: there are none), and what a body begins with."""
    if points:
        for at in range(0, len(words), BLOCK):
            codes, base = points.codes(words[at:at + BLOCK])
            yield words[at:at + BLOCK], codes, struct.pack("<I", base)
        return
    with np.errstate(all="ignore"):
        q, y = multiples(words, step)
        has_code = (np.abs(q) <= LARGEST) & (y.view(f"u{value_bytes}") == words.view(f"u{value_bytes}"))
    q = np.where(has_code, q, 0).astype(np.int64)
    codes = np.where(q >= 0, 2 * q, -2 * q - 1)
    for at in range(0, len(words), BLOCK):
        yield words[at:at + BLOCK], codes[at:at + BLOCK] if has_code[at:at + BLOCK].all() else None, b""


def blocks_of(words, step, value_bytes, has_symbols, points):
    """The bodies, widths and symbols of a segment."""
    bodies, widths, symbols = [], [], []
    words = np.concatenate([words, np.zeros(-len(words) % BLOCK, words.dtype)])
    for values, block, start in coded_blocks(words, step, value_bytes, points):
        if block is None:
            widths.append(RAW)
            bodies.append(values.tobytes())
            continue
        bodies.append(start)
        width = int(block.max()).bit_length()
        if has_symbols and width <= MOST_SYMBOL_WIDTH:
            symbols.append(block)
            width = 0
        else:
            bodies += [np.packbits((block >> k & 1).astype(np.uint8), bitorder="little").tobytes() for k in range(width)]
        widths.append(width)
    return b"".join(bodies), np.array(widths, np.uint8), np.concatenate(symbols).astype(np.uint8) if symbols else np.zeros(0, np.uint8)


def write_symbols(symbols):
    source = Bytes(0, len(symbols))
    return write_stream(source, symbols.tobytes(), symbols, 0, len(symbols))


def pack(header, payload, value_bytes):
    count = header.count
    if not count:
        return payload
    words, rest = np.frombuffer(payload, f"<f{value_bytes}", count), payload[count * value_bytes:]
    segments, points = [], Points(header, value_bytes) if is_pointwise(header) else None
    for first in range(0, count, SEGMENT):
        bodies, widths, symbols = blocks_of(words[first:first + SEGMENT], step_in(header, payload), value_bytes, header.flags & ENTROPY, points)
        segment = struct.pack("<I", len(bodies)) + bodies
        if header.flags & ENTROPY:
            segment += write_symbols(widths) + (write_symbols(symbols) if len(symbols) else b"")
        else:
            segment += padded(widths.tobytes())
        segments.append(segment)
    packed = struct.pack(f"<{len(segments)}I", *map(len, segments)) + rest + b"".join(segments)
    return packed if len(packed) < len(payload) else payload


def body_bytes(width, value_bytes, points):
    return BLOCK * value_bytes if width == RAW else 4 * int(width) + (4 if points else 0)


def read_segment(segment, step, value_bytes, count, has_symbols, points):
    size, = struct.unpack("<I", segment.take(4))
    bodies = segment.take(size)
    blocks = -(-count // BLOCK)
    if has_symbols:
        widths = read_stream(Bytes(0, blocks), segment, 0, blocks)
    else:
        widths = np.frombuffer(segment.take(blocks), np.uint8)
    need(all(w <= MOST_WIDTH or w == RAW for w in widths), "width")
    need(not has_symbols or all(w == 0 or w > MOST_SYMBOL_WIDTH for w in widths), "width")
    need(sum(body_bytes(w, value_bytes, points) for w in widths) == size, "bodies")
    number = BLOCK * int((widths == 0).sum()) if has_symbols else 0
    symbols = read_stream(Bytes(0, number), segment, 0, number) if number else None
    words, t, at, next_symbol = [], np.float64 if value_bytes == 8 else np.float32, 0, 0
    for w in widths:
        body, at = bodies[at:at + body_bytes(w, value_bytes, points)], at + body_bytes(w, value_bytes, points)
        if w == RAW:
            words.append(np.frombuffer(body, t))
            continue
        base = 0
        if points:
            base, body = struct.unpack("<I", body[:4])[0], body[4:]
        if has_symbols and w == 0:
            codes, next_symbol = symbols[next_symbol:next_symbol + BLOCK].astype(np.int64), next_symbol + BLOCK
        else:
            codes = sum((np.unpackbits(np.frombuffer(body, "u1", 4, 4 * k), bitorder="little").astype(np.int64) << k for k in range(w)),
                        np.zeros(BLOCK, np.int64))
        words.append(points.values(codes, base) if points else np.where(codes & 1, -(codes + 1) // 2, codes // 2).astype(t) * t(step))
    need(segment.at == len(segment.data), "bytes behind a segment")
    data = np.concatenate(words).tobytes()
    need(not any(data[count * value_bytes:]), "padding")
    return data[:count * value_bytes]


def unpack(header, packed, value_bytes):
    reader, payload = Reader(packed), b""
    index = np.frombuffer(reader.take(4 * -(-header.count // SEGMENT)), "<u4")
    rest = reader.take(4) if header.flags & RELATIVE else b""
    points = Points(header, value_bytes) if is_pointwise(header) else None
    for i, size in enumerate(index):
        segment = Reader(reader.data[reader.at:reader.at + int(size)])
        need(len(segment.data) == size, "segment")
        reader.at += int(size)
        payload += read_segment(segment, step_in(header, rest), value_bytes, min(SEGMENT, header.count - i * SEGMENT), header.flags & ENTROPY, points)
    need(reader.at == len(packed), "bytes behind the segments")
    return payload + rest
