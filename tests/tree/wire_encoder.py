"""A second encoder of chunks, written from lib/codec/WIRE.md alone; the decoder beside it shares its conversions.

`encode(header, values)` gives the chunk of fp64 `values`, which hold the tensor's or its accumulator's numbers exactly.
"""

import numpy as np

import wire_grid
from wire_decoder import (BFLOAT16, BOUND, CASTS, DITHER, DUMMY, E2M1, E4M3, ELEMENTS, FLOAT64, FP8E4M3, FP8E5M2, HEADER, INT, MINMAX, MXFP4, MXFP6, LOSSLESS, MXFP8, NONE, NORM, NVFP4, ONEBIT, SMALL, SPARSE, TBQ, TERNGRAD, TYPE_BYTES, grid_bytes, layout_of, levels_of, narrow,
                          noise, plane_widths, rotated, store, ternary_bytes, widen)

FLT_MAX = np.float32(2.0**128 - 2.0**104)
FLT_MIN = np.float32(2.0**-126)


def quantize(v, u, lowest, highest, dithers=False):
    if dithers:
        return np.clip(np.rint(v + (u - u.dtype.type(0.5))), lowest, highest).astype(np.int64)
    return np.clip(np.rint(v) if u is None else np.floor(v + u), lowest, highest).astype(np.int64)


def blocks_of(values, size, filler):
    """One row per block; the last one filled up."""
    rows = -(-len(values) // size)
    padded = np.full(rows * size, filler, dtype=values.dtype)
    padded[:len(values)] = values
    return padded.reshape(rows, size)


def round_away_to_bf16(magnitude):
    """Positive fp64 numbers to patterns of bf16; fp64 holds the exact quotient."""
    exponent = np.maximum(np.frexp(magnitude)[1] - 1, -126)
    significand = np.ceil(np.ldexp(magnitude, 7 - exponent)).astype(np.int64)
    return ((exponent + 126) << 7) + significand


def encode_int(header, values, u):
    b = header.bits
    x = blocks_of(values.astype(np.float32), header.bucket, np.float32(0))
    finite = np.isfinite(x).all(axis=1)
    x = np.where(finite[:, None], x, np.float32(0))
    most, least = x.max(axis=1).astype(np.float64), x.min(axis=1).astype(np.float64)
    m = np.where(most >= -least, most, least)
    pattern = round_away_to_bf16(np.where(m == 0, 1.0, np.abs(m)) * 2.0 ** -(b - 1))
    top = (128 - (b - 1) + 127) << 7  # 2^(128 - (b - 1))
    pattern = np.where(pattern >= top, top - 1, pattern) | np.where(m > 0, 0x8000, 0)
    pattern = np.where(finite, np.where(m == 0, 0, pattern), 0x7FC0)

    s = np.where(finite & (m != 0), widen(pattern, BFLOAT16), 1.0)
    lift = np.where(np.abs(s) < 2.0**-126, 2.0**64, 1.0)
    inverse = np.float32(1) / (s * lift).astype(np.float32)
    v = (x * lift.astype(np.float32)[:, None]) * inverse[:, None]
    flat = v.reshape(-1)[:len(values)]
    lowest = -(1 << (b - 1))
    if header.rounding == DITHER:
        d = u - np.float32(0.5)
        e = np.float32(1) - d
        lowest = np.where(np.float32(2) * (flat - np.float32(lowest)) < e * e - np.float32(0.25), lowest, lowest + 1)
    return quantize(flat, u, lowest, (1 << (b - 1)) - 1, header.rounding == DITHER) & ((1 << b) - 1), pattern.astype("<u2").tobytes()


def encode_minmax(header, values, u):
    t = np.float64 if header.type == FLOAT64 else np.float32
    steps = t((1 << header.bits) - 1)
    values = values.astype(t)
    size = header.bucket or max(len(values), 1)
    x = blocks_of(values, size, values[-1] if len(values) else t(0))
    lo, hi = x.min(axis=1), x.max(axis=1)
    valid = np.isfinite(x).all(axis=1) & np.isfinite(lo.astype(np.float32)) & np.isfinite(hi.astype(np.float32))
    lo, hi, x = np.where(valid, lo, t(0)), np.where(valid, hi, t(0)), np.where(valid[:, None], x, t(0))
    minimum = lo.astype(np.float32) + np.float32(0)
    r = hi - lo
    if t == np.float32:
        unit = np.where(np.isfinite(r), r / steps, t(2) * ((hi / t(2) - lo / t(2)) / steps))
    else:
        unit = (r / steps).astype(np.float32)
    unit = np.where(np.isinf(unit), FLT_MAX, unit).astype(np.float32)
    unit = np.where(unit < FLT_MIN, np.float32(0), unit)

    coded = (unit != 0)[:, None]
    inverse = t(1) / np.where(unit != 0, unit, np.float32(1)).astype(t)
    v = (x - minimum.astype(t)[:, None]) * inverse[:, None]
    codes = np.where(np.repeat(coded, size)[:len(values)], quantize(v.reshape(-1)[:len(values)], u, 0, int(steps), header.rounding == DITHER), 0)
    pairs = np.stack([np.where(valid, minimum, np.float32(np.nan)), np.where(valid, unit, np.float32(np.nan))], axis=1)
    pairs[np.isnan(pairs)] = np.nan
    return codes, pairs.astype("<f4").tobytes()


def element_codes(v, kind, u):
    """fp32 values onto the grid of small floats, saturating; fp64 holds a / g exactly."""
    f = SMALL[kind]
    bias = (1 << (f.exponent - 1)) - 1
    a = np.abs(v).astype(np.float64)
    e = np.maximum(np.frexp(a)[1] - 1, 1 - bias)
    steps = np.ldexp(a, f.fraction - e)
    q = np.rint(steps) if u is None else np.floor((steps + u).astype(np.float32))
    most = widen(np.array([f.largest]), kind)[0]
    code = narrow(np.minimum(np.ldexp(q, e - f.fraction), most), kind, saturate=True)
    return code.astype(np.int64) | np.signbit(v).astype(np.int64) << (f.exponent + f.fraction)


def rounded_by_chance(values, kind, u):
    """Small numbers as bytes: floor(a / g + u), exactly, and saturating."""
    f = SMALL[kind]
    bias = (1 << (f.exponent - 1)) - 1
    finite = np.isfinite(values)
    a = np.where(finite, np.abs(values), 0.0)
    e = np.maximum(np.frexp(np.where(a > 0, a, 2.0**(1 - bias)))[1] - 1, 1 - bias)
    steps = np.floor(np.ldexp(a, f.fraction - e + 16)).astype(np.int64)  # u has no smaller parts
    q = steps + (u * 65536).astype(np.int64) >> 16
    bits = np.minimum(((e + bias - 1).astype(np.int64) << f.fraction) + q, f.largest)
    exact = narrow(values, kind, saturate=True).astype(np.int64)  # of infinities and NaN
    bits |= np.signbit(values).astype(np.int64) << (f.exponent + f.fraction)
    return np.where(finite, bits, exact).astype("<u2" if f.exponent + f.fraction == 15 else "u1").tobytes()


def encode_mx(header, values, u):
    kind = ELEMENTS[header.codec]
    most, top = widen(np.array([SMALL[kind].largest]), kind)[0], 8 if header.codec == MXFP8 else 2
    x = blocks_of(values.astype(np.float32), 32, np.float32(0))
    finite = np.isfinite(x).all(axis=1)
    m = np.where(finite, np.abs(x).max(axis=1).astype(np.float64), 0)
    safe = np.where(m > 0, m, 1.0)
    if header.flags & 4:
        w = np.frexp(safe)[1] - 1 - top + 127
    else:  # m / M is no exact fp64, but the comparison below is
        w = np.frexp(safe / most)[1] + 127
        w = np.where(safe <= np.ldexp(most, w - 128), w - 1, w)
        w = np.where(safe <= np.ldexp(most, w - 128), w - 1, w)
    w = np.where(m > 0, np.clip(w, 0, 254 - top), 0)
    v = x * np.ldexp(np.float32(1), 127 - w)[:, None].astype(np.float32)
    coded = np.repeat(m > 0, 32)[:len(values)]
    codes = np.where(coded, element_codes(np.where(np.isfinite(v), v, 0).reshape(-1)[:len(values)], kind, u), 0)
    return codes, np.where(finite, w, 255).astype(np.uint8).tobytes()


def encode_scaled(header, values, u):
    kind = CASTS[header.codec]
    largest, most = (448, 0x7B12) if kind == E4M3 else (57344, 0x7792)
    x = blocks_of(values.astype(np.float32), header.bucket, np.float32(0))
    m = np.abs(x).max(axis=1)
    finite = np.isfinite(m)
    x, m = np.where(finite[:, None], x, np.float32(0)), np.where(finite, m, np.float32(0))
    quotient = np.maximum(m * (np.float32(1) / np.float32(largest)), FLT_MIN)
    scale = np.minimum((quotient.view(np.uint32).astype(np.int64) + 0xFFFF) >> 16, most)
    v = (x * (np.float32(1) / widen(scale, BFLOAT16).astype(np.float32))[:, None]).reshape(-1)[:len(values)]
    codes = np.where(np.repeat(m > 0, header.bucket)[:len(values)], element_codes(v, kind, u), 0)
    return codes, np.where(finite, np.where(m > 0, scale, 0), 0x7FC0).astype("<u2").tobytes()


def encode_nvfp4(header, values, u):
    one, count = np.float32(1), len(values)
    x = blocks_of(values.astype(np.float32), 16, np.float32(0))
    finite = np.isfinite(x).all(axis=1)
    largest = np.where(finite, np.abs(x).max(axis=1), np.float32(0))
    size = header.bucket or max(-(-count // 16) * 16, 1)
    m = blocks_of(largest, max(size // 16, 1), np.float32(0)).max(axis=1)
    t = np.clip(m / np.float32(2688), np.float32(2.0**-117), np.float32(1.5 * 2.0**116))
    c = one / (np.float32(6) * t)
    t = np.where(m > 0, t, np.float32(0))
    at = np.arange(len(largest)) * 16 // size
    r = largest * c[at]
    scale = narrow(r, E4M3, saturate=True).astype(np.int64)
    if not header.flags & 4:
        scale = np.minimum(scale + (widen(scale, E4M3) < r), 0x7E)
    product = widen(scale, E4M3).astype(np.float32) * t[at]
    d = one / np.where(scale > 0, product, one)
    v = np.where(finite[:, None], x, np.float32(0)) * d[:, None]
    coded = np.repeat(finite & (scale > 0), 16)[:count]
    codes = np.where(coded, element_codes(v.reshape(-1)[:count], E2M1, u), 0)
    return codes, np.where(finite, scale, 0x7F).astype(np.uint8).tobytes(), t.astype("<f4").tobytes()


def sum_rows(x):
    """In fp32, as 32 lanes go: of each row."""
    rows, count = x.shape
    padded = np.zeros((rows, -(-count // 32) * 32), np.float32)
    padded[:, :count] = x
    sums = np.zeros((rows, 32), np.float32)
    for step in range(0, padded.shape[1], 32):
        sums = sums + padded[:, step:step + 32]
    for distance in (16, 8, 4, 2, 1):  # each lane and the one that far away; lane 0 needs no others
        sums = sums[:, :distance] + sums[:, distance:]
    return sums[:, 0]


def encode_terngrad(header, values, u, clip):
    size, count = header.bucket, len(values)
    if count == 0:
        return b"", b""
    x = blocks_of(values.astype(np.float32), size, np.float32(0))
    lengths = np.minimum(count - size * np.arange(len(x)), size)
    a = np.abs(x).max(axis=1)
    finite = np.isfinite(a)
    exponents = np.frexp(np.where(finite, a, np.float32(0)))[1].astype(np.int64)
    h = np.where(finite, np.ldexp(np.float32(1), 1 - np.maximum(exponents - 1, -126)), np.float32(1))
    with np.errstate(all="ignore"):
        scaled = np.where(finite[:, None], x, np.float32(0)) * h[:, None]
        most = np.float32(clip) * np.sqrt(sum_rows(scaled * scaled) / lengths.astype(np.float32))
        s = np.where(finite, np.where(most < a * h, most, a * h) / h, np.float32(np.nan)).astype(np.float32)
        v = np.abs(scaled) * np.where(s > 0, np.float32(1) / (s * h), np.float32(0))[:, None]
    noise = blocks_of(u[:count], size, u.dtype.type(0))
    q = np.where((s > 0)[:, None], quantize(v, noise, 0, 1) * np.where(x < 0, 2, 1), 0).astype(np.int64)
    # Five digits to a byte: the rows of equal lengths at once, and the last row alone.
    whole = len(x) if lengths[-1] == size else len(x) - 1
    packed = packed_digits(q[:whole], size) + packed_digits(q[whole:], lengths[-1])
    return packed, np.where(np.isnan(s), np.float32(np.nan), s).astype("<f4").tobytes()


def packed_digits(q, length):
    bytes_of_row = ternary_bytes(length)
    padded = np.zeros((len(q), 5 * bytes_of_row), np.int64)
    padded[:, :length] = q[:, :length]
    weights = np.array([1, 3, 9, 27, 81])[None, :, None]
    return (padded.reshape(len(q), 5, bytes_of_row) * weights).sum(axis=1).astype(np.uint8).tobytes()


def encode_norm(header, values, u):
    levels, is_uniform = levels_of(header)
    size, count, one = min(header.bucket, max(len(values), 1)), len(values), np.float32(1)
    x = blocks_of(values.astype(np.float32), size, np.float32(0))
    finite = np.isfinite(x).all(axis=1)
    x = np.where(finite[:, None], x, np.float32(0))
    a = np.abs(x).max(axis=1)
    norm = a
    if not header.flags & 8:
        e = np.frexp(np.where(a > 0, a, one))[1].astype(np.int64) - 1
        h = np.ldexp(one, 1 - np.maximum(e, -126))
        lifted = x * h[:, None]
        p, again = sum_rows(x * x), sum_rows(lifted * lifted)
        norm = np.where(np.isfinite(p) & (p >= 2.0**-64), np.sqrt(p), np.sqrt(again) / h)
    norm = np.minimum(norm, np.float32(2.0**128 - 2.0**105))
    norm = np.where(norm < np.ldexp(float(levels if is_uniform else 1), -126), np.float32(0), norm).astype(np.float32)

    s = norm / np.float32(levels) if is_uniform else norm
    inverse = one / np.where(norm > 0, s, one)
    v = (x * inverse[:, None]).reshape(-1)[:count]
    if is_uniform:
        q = quantize(v, u, -levels, levels)
    else:
        share = np.abs(v).astype(np.float64)
        e = np.where(share > 0, np.maximum(np.frexp(share)[1] - 1, 1 - levels), 1 - levels)
        w = np.ldexp(share, -e).astype(np.float32)  # exactly
        level = e - (1 - levels) + quantize(w, u, 0, 2)
        q = np.where(np.signbit(v), -1, 1) * np.minimum(level, levels)
    coded = np.repeat(norm > 0, size)[:count]
    return np.where(coded, q, 0) & ((1 << header.bits) - 1), np.where(finite, norm, np.float32(np.nan)).astype("<f4").tobytes()


def encode_topk(header, values, layout):
    kept, indices, at_values = layout.kept
    payload = bytearray(layout.bytes)
    width = TYPE_BYTES[header.type]
    patterns = np.frombuffer(store(values, header.type), f"<u{width}")
    magnitude = patterns & np.array((1 << (8 * width - 1)) - 1, patterns.dtype)
    order = np.lexsort((np.arange(len(values)), ~magnitude))
    at = np.sort(order[:kept])
    counts = np.bincount(at // 65536, minlength=-(-len(values) // 65536)).astype("<u4").tobytes()
    payload[:len(counts)] = counts
    payload[indices:indices + 2 * kept] = (at % 65536).astype("<u2").tobytes()
    payload[at_values:] = patterns[at].tobytes()
    return bytes(payload)


def encode_onebit(header, values, u):
    size, count = min(header.bucket, max(len(values), 1)), len(values)
    x = blocks_of(values.astype(np.float32), size, np.float32(0))
    is_there = blocks_of(np.ones(count, bool), size, False)
    finite = np.isfinite(x).all(axis=1)
    x = np.where(finite[:, None], x, np.float32(0))
    means = []
    for is_code in (is_there & ~(x < 0), x < 0):
        number = np.maximum(is_code.sum(axis=1), 1).astype(np.float32)
        part = np.where(is_code, x, np.float32(0))
        total, low = sum_rows(part), sum_rows(part * np.float32(2.0**-32))
        lifted = np.clip(low / number * np.float32(2.0**32), -FLT_MAX, FLT_MAX)
        means.append(np.where(finite, np.where(np.isfinite(total), total / number, lifted), np.float32(np.nan)))
    means = np.stack(means, axis=1).astype("<f4")
    means[np.isnan(means)] = np.nan
    return (x < 0).reshape(-1)[:count].astype(np.int64), means.tobytes()


def encode_tbq(header, values, u):
    x, t = values.astype(np.float32), np.uint32(header.bucket).view(np.float32)
    return np.where(np.isfinite(x), np.where(x >= t, 1, np.where(x <= -t, 3, 0)), 2), b""


ENCODERS = {INT: encode_int, MINMAX: encode_minmax, MXFP8: encode_mx, MXFP6: encode_mx, MXFP4: encode_mx, FP8E4M3: encode_scaled, FP8E5M2: encode_scaled, NVFP4: encode_nvfp4, ONEBIT: encode_onebit, NORM: encode_norm, TBQ: encode_tbq}


def write_planes(payload, layout, bits, codes):
    groups = -(-layout.coded // 32)
    padded = np.zeros(groups * 32, np.int64)
    padded[:len(codes)] = codes
    padded, low = padded.reshape(groups, 32), 0
    for width in plane_widths(bits):
        part = padded >> low & ((1 << width) - 1)
        if width == 1:
            piece = sum(part[:, j::8] << j for j in range(8))
        else:
            step = 4 * width
            piece = sum(part[:, j * step:(j + 1) * step] << j * width for j in range(8 // width))
        data = piece.astype(np.uint8).tobytes()
        payload[layout.planes[width]:layout.planes[width] + len(data)] = data
        low += width


def encode(header, values, plain, clip=2.5):
    """`plain`: the same values converted to the tensor's type, as bytes, for what travels as it is."""
    n = header.count
    layout = layout_of(header.codec, header.type, header.bits, header.bucket, header.flags, n)
    head = HEADER.pack(*header._replace(payload_bytes=layout.bytes, crc=0))
    if header.codec in (NONE, LOSSLESS):
        return head + plain
    if header.codec == BOUND:
        return head + wire_grid.encode(header, values, grid_bytes(header.type))
    if (kind := CASTS.get(header.codec)) and not header.bucket:
        return head + (rounded_by_chance(values, kind, noise(header, n)) if header.rounding else store(values, kind, saturate=True))
    if header.codec in SPARSE:
        return head + encode_topk(header, values, layout)
    if header.codec == DUMMY:
        return head + plain[:layout.bytes]
    payload = bytearray(layout.bytes)
    with np.errstate(all="ignore"):
        coded = values[:layout.coded]
        if header.rotation:
            coded = rotated(coded.astype(np.float64 if header.codec == MINMAX and header.type == FLOAT64 else np.float32), header.rotation, is_back=False)
        u = None
        if header.rounding:
            t = np.float64 if header.codec == MINMAX and header.type == FLOAT64 else np.float32
            u = noise(header, layout.coded).astype(t)
        if header.codec == TERNGRAD:
            digits, scales, *bases = encode_terngrad(header, coded, u, clip)
            payload[:len(digits)] = digits
        else:
            codes, scales, *bases = ENCODERS[header.codec](header, coded, u)
            write_planes(payload, layout, header.bits, codes)
    payload[layout.scales:layout.scales + len(scales)] = scales
    if bases:
        payload[layout.bases:layout.bases + len(bases[0])] = bases[0]
    if n > layout.coded:
        payload[layout.raw:] = plain[-(n - layout.coded) * (len(plain) // n):]
    return head + bytes(payload)
