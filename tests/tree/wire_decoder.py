"""A second decoder of chunks, written from lib/codec/WIRE.md alone: it tests the page as much as the library.

It uses none of the C++ code; NumPy does the arithmetic. `decode(chunk)` gives a Chunk, or raises Damaged.
"""

import struct
from collections import namedtuple

import numpy as np

import wire_grid
import wire_packing
from wire_packing import need

NONE, FP16, BF16, FP8E4M3, FP8E5M2, INT, MINMAX, MXFP8, MXFP6, MXFP4, NVFP4, ONEBIT, TERNGRAD, TOPK, NORM, DGC, DUMMY, LOSSLESS, TBQ, BOUND = range(20)
SPARSE = (TOPK, DGC)
DITHER = 2
FLOAT16, FLOAT32, FLOAT64, BFLOAT16, E4M3, E5M2 = 6, 7, 8, 9, 10, 11
CASTS = {FP16: FLOAT16, BF16: BFLOAT16, FP8E4M3: E4M3, FP8E5M2: E5M2}
INTEGERS = {0: "i1", 1: "u1", 2: "i4", 3: "u4", 4: "i8", 5: "u8"}
# Not looked into: int16, uint16, complex64, complex128, bool, and pairs of a value and an index.
UNSEEN = {12: 2, 13: 2, 14: 8, 15: 16, 16: 1, 17: 8, 18: 16, 19: 16, 20: 8, 21: 8}
TYPE_BYTES = {**UNSEEN, **{t: int(d[1]) for t, d in INTEGERS.items()}, FLOAT16: 2, FLOAT32: 4, FLOAT64: 8, BFLOAT16: 2, E4M3: 1, E5M2: 1}

E2M3, E2M1 = "e2m3", "e2m1"  # elements alone, no tensor has them
ELEMENTS = {MXFP8: E4M3, MXFP6: E2M3, MXFP4: E2M1, NVFP4: E2M1}
SCALED = (FP8E4M3, FP8E5M2)  # where they have a block
ELEMENT_BITS = {MXFP8: 8, MXFP6: 6, MXFP4: 4, NVFP4: 4}

# exponent bits, fraction bits, canonical NaN, largest finite, infinity (None: there is none)
Small = namedtuple("Small", "exponent fraction nan largest infinity")
SMALL = {
    FLOAT16: Small(5, 10, 0x7E00, 0x7BFF, 0x7C00),
    BFLOAT16: Small(8, 7, 0x7FC0, 0x7F7F, 0x7F80),
    E4M3: Small(4, 3, 0x7F, 0x7E, None),
    E5M2: Small(5, 2, 0x7E, 0x7B, 0x7C),
    E2M3: Small(2, 3, None, 0x1F, None),
    E2M1: Small(2, 1, None, 0x7, None),
}
SATURATING_TYPES = (E4M3, E5M2)

Header = namedtuple("Header", "magic version codec type rounding bits flags sampled_nmse bucket count first "
                              "payload_bytes key call crc rotation")
HEADER = struct.Struct("<4sBBBBBBHIQQQQQII")
Layout = namedtuple("Layout", "planes digits scales bases kept raw bytes coded scale_count gaps")
Chunk = namedtuple("Chunk", "header values unpacked")  # values: as bytes, in the tensor's type; unpacked: the whole chunk


def widen(bits, kind):
    """Small numbers to fp64, exactly."""
    f = SMALL[kind]
    bits = bits.astype(np.int64)
    sign_bit = 1 << (f.exponent + f.fraction)
    magnitude = bits & (sign_bit - 1)
    field, fraction = magnitude >> f.fraction, magnitude & ((1 << f.fraction) - 1)
    bias = (1 << (f.exponent - 1)) - 1
    significand = np.where(field > 0, fraction + (1 << f.fraction), fraction)
    value = np.ldexp(significand.astype(np.float64), np.where(field > 0, field, 1) - bias - f.fraction)
    value = np.where(magnitude > f.largest, np.nan, value)
    if f.infinity is not None:
        value = np.where(magnitude == f.infinity, np.inf, value)
    return np.where(bits & sign_bit, -value, value)


def narrow(values, kind, saturate):
    """fp64 to small numbers, one rounding to nearest even."""
    f = SMALL[kind]
    bias = (1 << (f.exponent - 1)) - 1
    values = np.asarray(values, dtype=np.float64)
    magnitude = np.where(np.isfinite(values), np.abs(values), 0.0)
    exponent = np.where(magnitude > 0, np.frexp(magnitude)[1] - 1, 1 - bias)
    exponent = np.maximum(exponent, 1 - bias)
    significand = np.rint(np.ldexp(magnitude, f.fraction - exponent)).astype(np.int64)
    bits = ((exponent + bias - 1).astype(np.int64) << f.fraction) + significand
    bits = np.where(bits > f.largest, f.largest if saturate else f.infinity, bits)
    infinity = f.nan if f.infinity is None else f.infinity
    bits = np.where(np.isinf(values), infinity, bits)
    signed = bits | (np.signbit(values).astype(np.int64) << (f.exponent + f.fraction))
    bits = np.where(np.isnan(values) | (bits == f.nan), f.nan, signed)
    return bits.astype(np.uint16 if f.exponent + f.fraction == 15 else np.uint8)


def load(data, kind):
    """Bytes of a floating type as fp64."""
    if kind in SMALL:
        return widen(np.frombuffer(data, "<u2" if TYPE_BYTES[kind] == 2 else "u1"), kind)
    return np.frombuffer(data, "<f4" if kind == FLOAT32 else "<f8").astype(np.float64)


def store(values, kind, saturate=None):
    """fp64 values as bytes of a floating type, NaN canonical."""
    if kind in SMALL:
        return narrow(values, kind, kind in SATURATING_TYPES if saturate is None else saturate).tobytes()
    values = values.astype(np.float32 if kind == FLOAT32 else np.float64)
    values[np.isnan(values)] = np.nan
    return values.tobytes()


def scale_of(codec, bucket):
    """Values that share a scale, and its bytes."""
    if codec in (TERNGRAD, NORM):
        return bucket, 4
    if codec in SCALED:
        return bucket, 2
    if codec in ELEMENTS:
        return 16 if codec == NVFP4 else 32, 1
    return bucket, 2 if codec == INT else 8


def ternary_bytes(values):
    """Five to a byte, rounded up to words."""
    return -(-(-(-values // 5)) // 4) * 4


def plane_widths(bits):
    return [w for w in (8, 4, 2, 1) if bits & w]


def grid_bytes(kind):
    return 8 if kind == FLOAT64 else 4


def layout_of(codec, kind, bits, bucket, flags, n):
    skips = flags & 1
    if codec == BOUND:
        return Layout({}, 0, 0, 0, 0, 0, n * grid_bytes(kind) + (4 if flags & wire_grid.RELATIVE and n else 0), 0, 0, [])
    if codec in (NONE, LOSSLESS) or codec in CASTS and not bucket:
        return Layout({}, 0, 0, 0, 0, 0, n * TYPE_BYTES[CASTS.get(codec, kind)], 0, 0, [])
    if codec == DUMMY:
        kept = -(-n * bucket // 1000000)
        return Layout({}, 0, 0, 0, (kept, 0, 0), 0, kept * TYPE_BYTES[kind], n, 0, [])
    if codec in SPARSE:  # bucket is the ratio in millionths
        kept = -(-n * bucket // 1000000)
        pages = -(-n // 65536) * 4
        indices = -(-pages // 16) * 16
        values = -(-(indices + kept * 2) // 16) * 16
        gaps = [(pages, indices), (indices + kept * 2, values)]
        return Layout({}, 0, 0, 0, (kept, indices, values), 0, values + kept * TYPE_BYTES[kind], n, 0, gaps)
    size = bucket if bucket and codec != TBQ else max(n, 1)
    raw_count = n % size if skips else 0
    coded = n - raw_count
    scale_values, scale_bytes = scale_of(codec, size)
    groups, scale_count = -(-coded // 32), -(-coded // scale_values)
    planes, gaps, end = {}, [], 0

    def section(length):
        nonlocal end
        start = -(-end // 16) * 16
        gaps.append((end, start))
        end = start + length
        return start

    for width in plane_widths(bits):
        planes[width] = section(groups * 4 * width)
    digits = section(coded // size * ternary_bytes(size) + ternary_bytes(coded % size)) if codec == TERNGRAD else 0
    if codec == TBQ:
        return Layout(planes, 0, 0, 0, 0, 0, end, coded, 0, gaps)
    scales = section(scale_count * scale_bytes)
    bases = section(-(-coded // size) * 4) if codec == NVFP4 else 0
    raw = section(raw_count * TYPE_BYTES[kind]) if raw_count else 0
    return Layout(planes, digits, scales, bases, 0, raw, end, coded, scale_count, gaps)


def read_codes(payload, layout, bits):
    groups = -(-layout.coded // 32)
    codes, low = np.zeros((groups, 32), np.int64), 0
    for width in plane_widths(bits):
        start = layout.planes[width]
        piece = np.frombuffer(payload, "u1", groups * 4 * width, start).reshape(groups, 4 * width).astype(np.int64)
        if width == 1:
            part = np.stack([piece >> j & 1 for j in range(8)], axis=2).reshape(groups, 32)
        else:
            part = np.concatenate([piece >> j * width & ((1 << width) - 1) for j in range(8 // width)], axis=1)
        codes |= part << low
        low += width
    codes = codes.reshape(-1)
    need(not codes[layout.coded:].any(), "padding code")
    return codes[:layout.coded]


def philox(counter, key):
    """Seven rounds on lists of uint64 arrays that hold 32-bit words."""
    mask = np.uint64(0xFFFFFFFF)
    c, k = list(counter), list(key)
    for _ in range(7):
        p0, p1 = np.uint64(0xD2511F53) * c[0], np.uint64(0xCD9E8D57) * c[2]
        c = [(p1 >> np.uint64(32)) ^ c[1] ^ k[0], p1 & mask, (p0 >> np.uint64(32)) ^ c[3] ^ k[1], p0 & mask]
        k = [k[0] + np.uint64(0x9E3779B9) & mask, k[1] + np.uint64(0xBB67AE85) & mask]
    return c


def noise(header, count):
    """u of each element of the chunk."""
    index = np.uint64(header.first) + np.arange(count, dtype=np.uint64)
    block = index >> np.uint64(3)
    halves = lambda x: [np.uint64(x & 0xFFFFFFFF), np.uint64(x >> 32)]
    mask = np.uint64(0xFFFFFFFF)
    call = [np.full(count, half) for half in halves(header.call)]
    words = np.stack(philox([block & mask, block >> np.uint64(32)] + call, halves(header.key)))
    lane = index & np.uint64(7)
    word = words[(lane >> np.uint64(1)).astype(np.int64), np.arange(count)]
    return ((word >> (np.uint64(16) * (lane & np.uint64(1)))) & np.uint64(0xFFFF)).astype(np.float64) / 65536


def decode_int(header, payload, layout):
    bits = header.bits
    raw = np.frombuffer(payload, "<u2", layout.scale_count, layout.scales)
    scale = widen(raw, BFLOAT16)
    allowed = np.where(np.isnan(scale), raw == 0x7FC0, np.abs(scale) < np.ldexp(1.0, 128 - (bits - 1)))
    need((allowed & (raw != 0x8000)).all(), "scale")
    codes = read_codes(payload, layout, bits)
    q = np.where(codes >= 1 << (bits - 1), codes - (1 << bits), codes).astype(np.float32)
    if header.rounding == DITHER:
        last = q == -(1 << (bits - 1))
        q = q - np.where(last, 0, noise(header, layout.coded) - 0.5).astype(np.float32)
        return q * np.repeat(scale.astype(np.float32), header.bucket)[:layout.coded] + np.float32(0)
    return q * np.repeat(scale.astype(np.float32), header.bucket)[:layout.coded]


def decode_minmax(header, payload, layout):
    raw = np.frombuffer(payload, "<u4", 2 * layout.scale_count, layout.scales).reshape(-1, 2)
    low, unit = raw.view("<f4").T
    is_nan = (raw == 0x7FC00000).all(axis=1)
    is_number = np.isfinite(low) & (raw[:, 0] != 1 << 31) & ((raw[:, 1] == 0) | (np.isfinite(unit) & (unit >= np.float32(2.0**-126))))
    need((is_nan | is_number).all(), "scale")
    codes = read_codes(payload, layout, header.bits)
    t = np.float64 if header.type == FLOAT64 else np.float32
    at = np.arange(layout.coded) // (header.bucket or max(header.count, 1))
    q = codes.astype(t)
    if header.rounding == DITHER:
        q = q - (noise(header, layout.coded) - 0.5).astype(t)
    return low.astype(t)[at] + unit.astype(t)[at] * q


def decode_mx(header, payload, layout):
    w = np.frombuffer(payload, "u1", layout.scale_count, layout.scales).astype(np.int64)
    need(((w == 255) | (w <= 254 - (8 if header.codec == MXFP8 else 2))).all(), "scale")
    scale = np.where(w == 255, np.nan, np.ldexp(1.0, np.minimum(w, 254) - 127))
    codes = read_codes(payload, layout, header.bits)
    return (widen(codes, ELEMENTS[header.codec]) * np.repeat(scale, 32)[:layout.coded]).astype(np.float32)


def decode_scaled(header, payload, layout):
    raw = np.frombuffer(payload, "<u2", layout.scale_count, layout.scales)
    most = 0x7B12 if header.codec == FP8E4M3 else 0x7792
    need(((raw == 0) | (raw == 0x7FC0) | (raw >= 0x80) & (raw <= most)).all(), "scale")
    scale = np.repeat(widen(raw, BFLOAT16), header.bucket)[:layout.coded]
    return (widen(read_codes(payload, layout, 8), CASTS[header.codec]) * scale).astype(np.float32)


def decode_nvfp4(header, payload, layout):
    scale = np.frombuffer(payload, "u1", layout.scale_count, layout.scales)
    need((scale < 0x80).all(), "scale")
    size = header.bucket or max(header.count, 1)
    base = np.frombuffer(payload, "<f4", -(-layout.coded // size), layout.bases)
    bounds = (base >= 2.0**-117) & (base <= 1.5 * 2.0**116)
    need((bounds | (base.view("<u4") == 0)).all(), "base")
    at = np.arange(layout.scale_count) * 16 // size
    product = widen(scale, E4M3).astype(np.float32) * base[at]
    codes = read_codes(payload, layout, header.bits)
    return widen(codes, E2M1).astype(np.float32) * np.repeat(product, 16)[:layout.coded]


def decode_onebit(header, payload, layout):
    raw = np.frombuffer(payload, "<u4", 2 * layout.scale_count, layout.scales).reshape(-1, 2)
    means = raw.view("<f4")
    is_nan = (raw == 0x7FC00000).all(axis=1)
    is_number = np.isfinite(means).all(axis=1) & (raw[:, 0] < 1 << 31) & ((raw[:, 1] == 0) | (means[:, 1] < 0))
    need((is_nan | is_number).all(), "means")
    codes = read_codes(payload, layout, 1)
    return means[np.arange(layout.coded) // header.bucket, codes]


def decode_terngrad(header, payload, layout):
    raw = np.frombuffer(payload, "<u4", layout.scale_count, layout.scales)
    need(((raw == 0x7FC00000) | (raw < 0x7F800000)).all(), "scale")
    size, whole = header.bucket, layout.coded // header.bucket
    digits = [ternary_digits(payload, layout.digits, whole, size),
              ternary_digits(payload, layout.digits + whole * ternary_bytes(size), 1, layout.coded % size)]
    return np.array([0, 1, -1], np.float32)[np.concatenate(digits)] * np.repeat(raw.view("<f4"), size)[:layout.coded]


def ternary_digits(payload, at, rows, length):
    """Of rows of equal lengths, one after the other."""
    size = ternary_bytes(length)
    packed = np.array(memoryview(payload)[at:at + rows * size], "u1").reshape(rows, size)
    need((packed < 243).all(), "digits")
    digits = np.concatenate([packed // np.uint8(3**row) % np.uint8(3) for row in range(5)], axis=1)
    need(not digits[:, length:].any(), "digits of no value")
    return digits[:, :length].reshape(-1)


def levels_of(header):
    """L, and whether levels are uniform."""
    return (1 << (header.bits - 1)) - 1, not header.flags & 16


def decode_norm(header, payload, layout):
    raw = np.frombuffer(payload, "<u4", layout.scale_count, layout.scales)
    norm, (levels, is_uniform) = raw.view("<f4"), levels_of(header)
    least = np.ldexp(float(levels if is_uniform else 1), -126)
    need(((raw == 0x7FC00000) | (raw == 0) | ((norm >= least) & (norm <= 2.0**128 - 2.0**105))).all(), "norm")
    codes = read_codes(payload, layout, header.bits)
    q = np.where(codes >= 1 << (header.bits - 1), codes - (1 << header.bits), codes)
    at = np.arange(layout.coded) // header.bucket
    if is_uniform:
        return q.astype(np.float32) * (norm / np.float32(levels))[at]
    power = np.where(q == 0, 0.0, np.sign(q) * np.ldexp(1.0, np.abs(q) - levels))
    return power.astype(np.float32) * norm[at]


def decode_topk(header, payload, layout):
    kept, indices, values = layout.kept
    counts = np.frombuffer(payload, "<u4", -(-header.count // 65536)).astype(np.int64)
    need(counts.sum() == kept, "numbers of kept values")
    at = np.frombuffer(payload, "<u2", kept, indices) + np.repeat(np.arange(len(counts)) * 65536, counts)
    page = np.repeat(np.arange(len(counts)), counts)
    need((np.diff(at) > 0).all() and (at < header.count).all() and (at // 65536 == page).all(), "indices")
    y = np.zeros(header.count)
    y[at] = load(payload[values:], header.type)
    return y


def decode_dummy(header, payload, layout):
    y = np.zeros(header.count)
    y[:layout.kept[0]] = load(payload, header.type)
    return y


def decode_tbq(header, payload, layout):
    t = np.uint32(header.bucket).view(np.float32)
    return np.array([0, t, np.nan, -t], np.float32)[read_codes(payload, layout, 2)]


DECODERS = {INT: decode_int, MINMAX: decode_minmax, MXFP8: decode_mx, MXFP6: decode_mx, MXFP4: decode_mx, FP8E4M3: decode_scaled, FP8E5M2: decode_scaled, NVFP4: decode_nvfp4, ONEBIT: decode_onebit,
            TERNGRAD: decode_terngrad, TOPK: decode_topk, NORM: decode_norm, DGC: decode_topk, DUMMY: decode_dummy, TBQ: decode_tbq}


def rotation_factors(d, shift):
    counter = [np.arange(-(-d // 128), dtype=np.uint64)] + [np.zeros(-(-d // 128), np.uint64)] * 3
    words = np.stack(philox(counter, [np.uint64(5560), np.uint64(0)]), axis=1).reshape(-1)
    at = np.arange(d)
    is_negative = words[at // 32] >> (at % 32).astype(np.uint64) & np.uint64(1)
    return np.where(is_negative, -1.0, 1.0) * 2.0**-shift


def butterflies(rows):
    d, h = rows.shape[1], 1
    while h < d:
        x = rows.reshape(-1, d // (2 * h), 2, h)
        a, b = x[:, :, 0], x[:, :, 1]
        rows = np.stack([a + b, a - b], axis=2).reshape(-1, d)
        h *= 2
    return rows


def rotated(values, d, is_back):
    """Whole blocks of d values, in their own precision; the others as they are."""
    whole, log2 = len(values) // d * d, d.bit_length() - 1
    rows = values[:whole].reshape(-1, d)
    if is_back:
        rows = butterflies(rows) * rotation_factors(d, log2 // 2).astype(values.dtype)
    else:
        rows = butterflies(rows * rotation_factors(d, (log2 + 1) // 2).astype(values.dtype))
    return np.concatenate([rows.reshape(-1), values[whole:]])


def check_keys(h):
    sizes = (32, 64, 128, 256, 512)
    need(not h.rotation or (h.codec in (INT, MINMAX) and h.rotation in sizes and h.bucket in sizes), "keys")
    need(h.rounding != DITHER or h.codec in (INT, MINMAX), "keys")
    skips, ocp = h.flags & 1, h.flags & 4
    need(not ocp or h.codec in ELEMENTS, "keys")
    need(not h.flags & 24 or h.codec == NORM, "keys")
    need(not skips or (h.codec == MINMAX and h.bucket), "keys")
    need(not h.flags & 32 or h.codec not in (NONE, DUMMY, *SPARSE), "keys")
    need(h.flags & 32 or h.codec not in (LOSSLESS, BOUND), "keys")
    need(not h.flags & 192 or h.codec == BOUND, "keys")
    if h.codec in SCALED and h.bucket:
        need(h.bits == 8 and h.bucket in sizes, "keys")
    elif h.codec in (NONE, LOSSLESS) or h.codec in CASTS:
        need(h.bits == h.bucket == 0 and (h.codec in CASTS or not h.rounding), "keys")
    elif h.codec == BOUND:
        need(not wire_grid.is_pointwise(h) or not h.flags & wire_grid.RELATIVE, "keys")
        low, high = (1e-9, 1) if h.flags & wire_grid.RELATIVE else (1e-6, 0.5) if wire_grid.is_pointwise(h) else (1e-36, 1e36)
        need(h.bits == h.rounding == 0 and np.float32(low) <= wire_grid.bound_of(h) <= np.float32(high), "keys")
    elif h.codec == INT:
        need(h.bits in (2, 3, 4, 5, 6, 8, 10, 12) and 1 <= h.bucket <= 1 << 30, "keys")
    elif h.codec == MINMAX:
        need(1 <= h.bits <= 8 and h.bucket <= 1 << 30, "keys")
    elif h.codec == NORM:
        need(2 <= h.bits <= 8 and 1 <= h.bucket <= 1 << 30, "keys")
    elif h.codec in (*SPARSE, DUMMY):
        need(h.bits == h.rounding == 0 and 1 <= h.bucket <= 1000000, "keys")
    elif h.codec == TERNGRAD:
        need(h.bits == 0 and 1 <= h.bucket <= 1 << 30 and h.rounding, "keys")
    elif h.codec == TBQ:
        t = np.uint32(h.bucket).view(np.float32)
        need(h.bits == 2 and not h.rounding and np.isfinite(t) and t >= np.float32(2.0**-126), "keys")
    elif h.codec == ONEBIT:
        need(h.bits == 1 and 1 <= h.bucket <= 1 << 30 and not h.rounding, "keys")
    else:
        need(h.bits == ELEMENT_BITS[h.codec], "keys")
        need(h.bucket % 32 == 0 and h.bucket <= 1 << 30 if h.codec == NVFP4 else h.bucket == 32, "keys")


def read_header(chunk):
    need(len(chunk) >= HEADER.size, "too short")
    h = Header(*HEADER.unpack_from(chunk))
    need(h.magic == b"QCCL" and h.version == 1 and h.sampled_nmse <= 0x7F80, "fixed field")
    need((h.codec in (NONE, LOSSLESS, BOUND, *CASTS) or h.codec in DECODERS) and h.type in TYPE_BYTES and h.rounding <= DITHER, "codec, type or rounding")
    need(h.codec == NONE or h.type not in INTEGERS and h.type not in UNSEEN, "type")
    check_keys(h)
    need(h.rounding or h.key == h.call == 0, "noise")
    need(h.flags & 2 or h.crc == 0, "checksum without its flag")
    need(h.first + h.count < 1 << 64, "index")
    return h


def value_bytes(h):
    """Of payloads that consist of values; 0 for all others."""
    return TYPE_BYTES[CASTS.get(h.codec, h.type)] if h.codec == LOSSLESS or h.codec in CASTS and not h.bucket else 0


def decode(chunk):
    h = read_header(chunk)
    payload = chunk[HEADER.size:]
    layout = layout_of(h.codec, h.type, h.bits, h.bucket, h.flags, h.count)
    need(h.payload_bytes == len(payload), "length")
    need(len(payload) == layout.bytes or h.flags & 32 and len(payload) < layout.bytes, "length")
    if h.codec == BOUND:
        packed, payload = payload, payload if len(payload) == layout.bytes else wire_grid.unpack(h, payload, grid_bytes(h.type))
        need(wire_grid.pack(h, payload, grid_bytes(h.type)) == packed, "not what an encoder packs")
        need(not h.flags & wire_grid.RELATIVE or not h.count or wire_grid.is_step(wire_grid.step_in(h, payload)), "step")
    elif len(payload) < layout.bytes:
        packed, payload = payload, wire_packing.unpack(layout, h.bits, value_bytes(h), payload, h.count)
        need(wire_packing.pack(layout, h.bits, value_bytes(h), payload, h.count) == packed, "not what an encoder packs")
    elif h.flags & 32:
        need(wire_packing.pack(layout, h.bits, value_bytes(h), payload, h.count) == payload, "an encoder packs it")
    h = h._replace(payload_bytes=layout.bytes)
    unpacked = HEADER.pack(*h) + payload
    need(not any(any(payload[a:b]) for a, b in layout.gaps), "gap")
    if h.codec in (NONE, LOSSLESS):
        return Chunk(h, payload, unpacked)
    if h.codec == BOUND:
        words = payload[:h.count * grid_bytes(h.type)]
        kind = FLOAT64 if h.type == FLOAT64 else FLOAT32
        return Chunk(h, words if kind == h.type else store(load(words, kind), h.type, saturate=True), unpacked)
    if (kind := CASTS.get(h.codec)) and not h.bucket:
        return Chunk(h, payload if kind == h.type else store(load(payload, kind), h.type), unpacked)
    with np.errstate(all="ignore"):
        y = DECODERS[h.codec](h, payload, layout)
        if h.rotation:
            y = rotated(y, h.rotation, is_back=True)
        return Chunk(h, store(y.astype(np.float64), h.type) + (payload[layout.raw:] if layout.raw or not layout.coded else b""), unpacked)
