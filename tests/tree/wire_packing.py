"""Packs and unpacks payloads, written from lib/codec/WIRE.md alone, as wire_decoder.py is.

`unpack(header, layout, payload)` gives the unpacked payload, or raises Damaged; `pack` gives what an encoder sends.
"""

import struct

import numpy as np

SEGMENT, LANES, SUM, LEAST, LIMIT = 65536, 32, 4096, 1 << 15, 1 << 31
STORED, CONSTANT, CODED = range(3)
OMITS_ZEROS = 1 << 31


class Damaged(Exception):
    pass


def need(condition, what):
    if not condition:
        raise Damaged(what)


def aligned(size):
    return -(-size // 4) * 4


def padded(data):
    return data + bytes(aligned(len(data)) - len(data))


# ---- Where symbols lie: classes that divide a part of a payload into symbols and raw bytes, and join them again


class Bytes:
    """Symbols are bytes of the payload."""

    streams, bits = 1, 8

    def __init__(self, start, symbols):
        self.start, self.symbols, self.end = start, symbols, start + symbols

    def raw_bytes(self, count):
        return 0

    def split(self, payload, first, count):
        return [np.frombuffer(payload, "u1", count, self.start + first)], b""

    def join(self, streams, raw, payload, first, count):
        payload[self.start + first:self.start + first + count] = streams[0].tobytes()

    def store(self, payload, symbols, first, count):
        return symbols.tobytes()

    def stored(self, data, first, count):
        return np.frombuffer(data, "u1", count)

    def stored_bytes(self, count):
        return count


class Values(Bytes):
    """Values of 2, 4 or 8 bytes: one or two symbols below the sign, and raw bits in two planes."""

    def __init__(self, width, count):
        super().__init__(0, count)
        self.width, self.end = width, width * count
        self.streams = 2 if width == 8 else 1
        self.low = {2: 1, 4: 2, 8: 4}[width]  # bytes of the lower plane
        self.high = width - self.streams - self.low
        self.raw_bits = 8 * width - 1 - 8 * self.streams

    def raw_bytes(self, count):
        return count * (self.low + self.high)

    def split(self, payload, first, count):
        v = np.frombuffer(payload, f"<u{self.width}", count, first * self.width).astype(np.uint64)
        top = 8 * self.width - 1
        symbols = [(v >> np.uint64(top - 8 * (i + 1)) & np.uint64(255)).astype(np.uint8) for i in range(self.streams)]
        raw = v & np.uint64((1 << self.raw_bits) - 1) | v >> np.uint64(top) << np.uint64(self.raw_bits)
        planes = raw.astype(f"<u{self.low}").tobytes()
        if self.high:
            planes += (raw >> np.uint64(8 * self.low)).astype(f"<u{self.high}").tobytes()
        return symbols, planes

    def join(self, streams, raw, payload, first, count):
        bits = np.frombuffer(raw, f"<u{self.low}", count).astype(np.uint64)
        if self.high:
            bits = bits | np.frombuffer(raw, f"<u{self.high}", count, count * self.low).astype(np.uint64) << np.uint64(8 * self.low)
        top = 8 * self.width - 1
        v = bits & np.uint64((1 << self.raw_bits) - 1) | bits >> np.uint64(self.raw_bits) << np.uint64(top)
        for i, symbols in enumerate(streams):
            v = v | symbols.astype(np.uint64) << np.uint64(top - 8 * (i + 1))
        payload[first * self.width:(first + count) * self.width] = v.astype(f"<u{self.width}").tobytes()


def zeros_of(source, payload, first, count):
    """Where a segment of values is +0, and the symbol that its zeros get, or None if it does not omit them."""
    if not isinstance(source, Values):
        return None, None
    zeros = np.frombuffer(payload, f"<u{source.width}", count, first * source.width) == 0
    others = np.bincount(source.split(payload, first, count)[0][0][~zeros], minlength=256)
    unused = np.flatnonzero(others == 0)
    if 16 * zeros.sum() < count or 8 * others[0] > zeros.sum() or not len(unused):
        return zeros, None
    return zeros, int(unused[0])


def read_plane(data, width, groups):
    piece = np.frombuffer(data, "u1", groups * 4 * width).reshape(groups, 4 * width).astype(np.int64)
    if width == 1:
        return np.stack([piece >> j & 1 for j in range(8)], axis=2).reshape(groups, 32)
    return np.concatenate([piece >> j * width & ((1 << width) - 1) for j in range(8 // width)], axis=1)


def write_plane(codes, width):
    groups = len(codes)
    if width == 1:
        piece = (codes.reshape(groups, 4, 8) << np.arange(8)).sum(axis=2)
    else:
        parts = codes.reshape(groups, 8 // width, 4 * width)
        piece = sum(parts[:, j] << j * width for j in range(8 // width))
    return piece.astype(np.uint8).tobytes()


class Codes(Bytes):
    """Codes in planes: the upper 8 bits of a code, or two codes of 3 bits, or the whole code."""

    def __init__(self, bits, planes, groups):
        self.code_bits, self.planes, self.is_pair = bits, planes, bits == 3
        self.low = max(0, bits - 8)  # raw bits of a code
        self.of_group = 16 if self.is_pair else 32
        super().__init__(0, groups * self.of_group)
        self.bits = 2 * bits if self.is_pair else min(bits, 8)
        width = min(planes)
        self.end = planes[width] + groups * 4 * width

    def raw_bytes(self, count):
        return count * self.low // 8

    def pieces(self, first, count):
        """Of each plane: its width, and where the segment's piece begins and ends."""
        for width in sorted(self.planes, reverse=True):
            start = self.planes[width] + first // self.of_group * 4 * width
            yield width, start, start + count // self.of_group * 4 * width

    def split(self, payload, first, count):
        codes, shift = 0, 0
        for width, start, end in self.pieces(first, count):
            codes = codes | read_plane(payload[start:end], width, count // self.of_group) << shift
            shift += width
        if self.is_pair:
            codes = codes[:, :16] | codes[:, 16:] << 3
        raw = write_plane(codes & ((1 << self.low) - 1), self.low) if self.low else b""
        return [(codes >> self.low).reshape(-1).astype(np.uint8)], raw

    def join(self, streams, raw, payload, first, count):
        codes = streams[0].astype(np.int64).reshape(-1, self.of_group) << self.low
        if self.low:
            codes = codes | read_plane(raw, self.low, len(codes))
        if self.is_pair:
            codes = np.concatenate([codes & 7, codes >> 3], axis=1)
        for width, start, end in self.pieces(first, count):
            payload[start:end] = write_plane(codes & ((1 << width) - 1), width)
            codes = codes >> width

    def store(self, payload, symbols, first, count):
        if self.low:
            return symbols.tobytes()
        return b"".join(payload[start:end] for _, start, end in self.pieces(first, count))

    def stored(self, data, first, count):
        if self.low:
            return np.frombuffer(data, "u1", count)
        codes, shift, at = 0, 0, 0
        for width, start, end in self.pieces(first, count):
            codes = codes | read_plane(data[at:at + end - start], width, count // self.of_group) << shift
            at, shift = at + end - start, shift + width
        if self.is_pair:
            codes = codes[:, :16] | codes[:, 16:] << 3
        return codes.reshape(-1).astype(np.uint8)

    def stored_bytes(self, count):
        return count * self.bits // 8


def source_of(layout, bits, value_bytes, count):
    """value_bytes: of plain values; 0 for codes and digits."""
    if value_bytes:
        return Bytes(0, count) if value_bytes == 1 else Values(value_bytes, count)
    groups = -(-layout.coded // 32)
    if bits in (1, 2, 4, 8):
        return Bytes(layout.planes[bits], groups * 4 * bits)
    if bits == 0:  # digits, up to the gap before the scales
        return Bytes(layout.digits, layout.gaps[1][0] - layout.digits)
    return Codes(bits, layout.planes, groups)


# ---- Frequencies


def frequencies_of(symbols):
    counts = np.bincount(symbols, minlength=256)
    total = len(symbols)
    f = np.where(counts > 0, np.maximum(1, (counts * SUM + total // 2) // total), 0)
    while f.sum() != SUM:
        most, over = int(np.argmax(f)), int(f.sum()) - SUM
        f[most] -= over if over < 0 else min(over, (int(f[most]) + 7) // 8)
    return f


def write_frequencies(f, bits):
    present = np.flatnonzero(f)
    members = np.zeros(1 << bits, np.uint8)
    members[present] = 1
    nibbles = []
    for s in present:
        rest = int(f[s]) - 1
        while rest > 7:
            nibbles.append(rest & 7 | 8)
            rest >>= 3
        nibbles.append(rest)
    nibbles += [0] * (len(nibbles) % 2)
    return padded(np.packbits(members, bitorder="little").tobytes() + bytes(a | b << 4 for a, b in zip(nibbles[::2], nibbles[1::2])))


def read_frequencies(data, bits):
    size = (1 << bits) // 8
    need(len(data) >= size, "frequencies")
    f, at = np.zeros(256, np.int64), 2 * size

    def nibble():
        nonlocal at
        need(at // 2 < len(data), "frequencies")
        at += 1
        return data[(at - 1) // 2] >> 4 * ((at - 1) % 2) & 15

    for s in np.flatnonzero(np.unpackbits(np.frombuffer(data, "u1", size), bitorder="little")):
        rest, shift, digit = 0, 0, 8
        while digit & 8:
            need(shift <= 9, "frequency")
            digit = nibble()
            need(digit or not shift, "a longer form than it needs")
            rest |= (digit & 7) << shift
            shift += 3
        f[s] = rest + 1
    end = aligned(-(-at // 2))
    need(end <= len(data) and f.sum() == SUM and f.max() < SUM, "frequencies")
    need(not at % 2 or data[at // 2] >> 4 == 0, "padding")
    need(not any(data[-(-at // 2):end]), "padding")
    return f, end


# ---- rANS


def encode_symbols(symbols, f):
    start = np.cumsum(f) - f
    states, words = np.full(LANES, LEAST, np.int64), []
    for row in range((len(symbols) - 1) // LANES * LANES, -1, -LANES):
        s = symbols[row:row + LANES]
        x = states[:len(s)]
        puts_out = x >> 19 >= f[s]
        words += (x[puts_out] & 0xFFFF).tolist()
        x = np.where(puts_out, x >> 16, x)
        states[:len(s)] = (x // f[s] << 12) + x % f[s] + start[s]
    return states, words


def decode_symbols(states, words, f, count):
    symbol_of = np.repeat(np.arange(256), f)
    start, symbols, left = np.cumsum(f) - f, np.zeros(count, np.uint8), len(words)
    for row in range(0, count, LANES):
        x = states[:min(LANES, count - row)]
        slot = x & (SUM - 1)
        s = symbol_of[slot]
        symbols[row:row + len(x)] = s
        x = f[s] * (x >> 12) + slot - start[s]
        takes = x < LEAST
        left -= int(takes.sum())
        need(left >= 0, "too few words")
        x[takes] = x[takes] << 16 | words[left:left + int(takes.sum())]
        states[:len(x)] = x
    need(left == 0 and (states == LEAST).all(), "words that nothing needs")
    return symbols


# ---- Payloads


def write_stream(source, payload, symbols, first, count):
    if (symbols == symbols[0]).all():
        return struct.pack("<BBH", CONSTANT, symbols[0], 0)
    f = frequencies_of(symbols)
    table = write_frequencies(f, source.bits)
    states, words = encode_symbols(symbols, f)
    coded = table + padded(np.array(words, "<u2").tobytes()) + states.astype("<u4").tobytes()
    stored = padded(source.store(payload, symbols, first, count))
    return struct.pack("<BBH", CODED, 0, len(words)) + coded if len(coded) < len(stored) else struct.pack("<I", STORED) + stored


def write_omitting(source, payload, zeros, symbol, first, count):
    kept = np.frombuffer(payload, f"<u{source.width}", count, first * source.width)[~zeros].tobytes()
    others = count - int(zeros.sum())
    streams, raw = source.split(kept, 0, others)
    symbols = np.full(count, symbol, np.uint8)
    symbols[~zeros] = streams[0]
    segment = struct.pack("<I", others | symbol << 24) + padded(raw) + write_stream(source, payload, symbols, first, count)
    return segment + b"".join(write_stream(source, kept, s, 0, others) for s in streams[1:] if others)


def pack(layout, bits, value_bytes, payload, count):
    """Returns the payload that is sent, which is the unpacked one if packing makes it no shorter."""
    if not payload:
        return payload
    source = source_of(layout, bits, value_bytes, count)
    segments, flags = [], []
    for first in range(0, source.symbols, SEGMENT):
        n = min(SEGMENT, source.symbols - first)
        zeros, symbol = zeros_of(source, payload, first, n)
        flags.append(0 if symbol is None else OMITS_ZEROS)
        if symbol is not None:
            segments.append(write_omitting(source, payload, zeros, symbol, first, n))
            continue
        streams, raw = source.split(payload, first, n)
        segments.append(padded(raw) + b"".join(write_stream(source, payload, s, first, n) for s in streams))
    index = np.array([len(s) | flag for s, flag in zip(segments, flags)], "<u4").tobytes()
    packed = index + padded(payload[source.end:]) + b"".join(segments)
    return packed if len(packed) < len(payload) else payload


class Reader:
    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, size):
        start, self.at = self.at, self.at + aligned(size)
        need(self.at <= len(self.data), "too short")
        need(not any(self.data[start + size:self.at]), "padding")
        return self.data[start:start + size]


def read_stream(source, reader, first, count):
    mode, symbol, word_count = struct.unpack("<BBH", reader.take(4))
    need(mode <= CODED and (mode == CONSTANT or symbol == 0) and (mode == CODED or word_count == 0), "head of a stream")
    if mode == CONSTANT:
        need(symbol < 1 << source.bits, "symbol")
        return np.full(count, symbol, np.uint8)
    if mode == STORED:
        return source.stored(reader.take(source.stored_bytes(count)), first, count)
    f, size = read_frequencies(reader.data[reader.at:], source.bits)
    reader.take(size)
    words = np.frombuffer(reader.take(2 * word_count), "<u2").astype(np.int64)
    states = np.frombuffer(reader.take(4 * LANES), "<u4").astype(np.int64)
    need(((states >= LEAST) & (states < LIMIT)).all(), "state")
    return decode_symbols(states, words, f, count)


def read_omitting(source, segment, payload, first, count):
    need(isinstance(source, Values), "zeros of a payload without values")
    head, = struct.unpack("<I", segment.take(4))
    others, symbol = head & 0xFFFFFF, head >> 24
    need(others <= count, "other values")
    raw = segment.take(source.raw_bytes(others))
    streams = [read_stream(source, segment, first, count)]
    is_other = streams[0] != symbol
    need(is_other.sum() == others, "zeros")
    if source.streams == 2:
        streams.append(read_stream(source, segment, 0, others) if others else np.zeros(0, np.uint8))
    kept, values = bytearray(others * source.width), np.zeros(count, f"<u{source.width}")
    source.join([streams[0][is_other]] + streams[1:], raw, kept, 0, others)
    values[is_other] = np.frombuffer(kept, values.dtype)
    payload[first * source.width:(first + count) * source.width] = values.tobytes()


def unpack(layout, bits, value_bytes, packed, count):
    source = source_of(layout, bits, value_bytes, count)
    reader, payload = Reader(packed), bytearray(layout.bytes)
    index = np.frombuffer(reader.take(4 * -(-source.symbols // SEGMENT)), "<u4")
    payload[source.end:] = reader.take(layout.bytes - source.end)
    for i, entry in enumerate(index):
        size = int(entry) & ~OMITS_ZEROS
        first = i * SEGMENT
        n = min(SEGMENT, source.symbols - first)
        segment = Reader(reader.data[reader.at:reader.at + size])
        need(len(segment.data) == size, "segment")
        reader.at += size
        if entry & OMITS_ZEROS:
            read_omitting(source, segment, payload, first, n)
        else:
            raw = segment.take(source.raw_bytes(n))
            streams = [read_stream(source, segment, first, n) for _ in range(source.streams)]
            source.join(streams, raw, payload, first, n)
        need(segment.at == len(segment.data), "bytes behind a segment")
    need(reader.at == len(packed), "bytes behind the segments")
    return bytes(payload)
