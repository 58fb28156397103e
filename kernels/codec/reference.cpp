// The scalar reference: WIRE.md in C++, one value at a time. Every other tier and device gives the
// same bytes. The code is clear rather than fast. This file has the kernels themselves, and codes
// in their planes, one bit field at a time. reference_codecs.cpp has the
// kinds of codecs. Any thread may call; nothing blocks.

#include "codec/shared_scales.hpp"
#include "kernels/codec/grid.hpp"
#include "kernels/codec/packing.hpp"
#include "kernels/codec/reference.hpp"
#include "kernels/codec/rotated_chunks.hpp"

namespace qccl {

static_assert(type_table.size() == 22,
              "a new type needs cases in number.hpp (load_float, store_float), combine.hpp "
              "(with_accumulator), cpu_values-inl.hpp (copy), cpu_tier-inl.hpp (encode_cast) and "
              "gpu_lane.hpp (with_bits, with_format)");
// An element in memory is a value of its accumulator's type, unless it is a narrow float.
static_assert(sizeof(Complex<float>) == type_bytes(DataType::complex64) &&
              sizeof(Complex<double>) == type_bytes(DataType::complex128) &&
              sizeof(Boolean) == type_bytes(DataType::boolean) &&
              sizeof(IndexedValue<float>) == type_bytes(DataType::float_int) &&
              sizeof(IndexedValue<double>) == type_bytes(DataType::double_int) &&
              sizeof(IndexedValue<int64_t>) == type_bytes(DataType::long_int) &&
              sizeof(IndexedValue<int32_t>) == type_bytes(DataType::int_int) &&
              sizeof(IndexedValue<int16_t>) == type_bytes(DataType::short_int));

// ---- Codes in planes

namespace {

// Where a value of a group lies in the group's piece of a plane.
struct PlanePosition {
    size_t byte;
    unsigned shift;
};
PlanePosition place_of(const PlanePart &part, size_t value) {
    if (part.bits == 1) return {value / 8, static_cast<unsigned>(value % 8)};
    const size_t bytes = part.group_bytes();
    return {value % bytes, static_cast<unsigned>(value / bytes) * part.bits};
}

} // namespace

void write_group(const ChunkRange &range, std::byte *payload, uint64_t group,
                 const GroupCodes &codes) {
    unsigned low = 0; // first bit of the code that the plane holds
    for (const PlanePart &part : plane_parts) {
        if ((range.codec->bits & part.bits) == 0) continue;
        std::byte *piece = payload + range.layout->*part.start + group * part.group_bytes();
        std::fill_n(piece, part.group_bytes(), std::byte{0});
        for (size_t value = 0; value < group_values; value++) {
            const PlanePosition place = place_of(part, value);
            const uint32_t bits = codes[value] >> low & ((1U << part.bits) - 1);
            piece[place.byte] |= static_cast<std::byte>(bits << place.shift);
        }
        low += part.bits;
    }
}

uint32_t read_code(const ChunkRange &range, const std::byte *payload, uint64_t element) {
    uint32_t code = 0;
    unsigned low = 0;
    for (const PlanePart &part : plane_parts) {
        if ((range.codec->bits & part.bits) == 0) continue;
        const std::byte *piece =
            payload + range.layout->*part.start + element / group_values * part.group_bytes();
        const PlanePosition place = place_of(part, element % group_values);
        const uint32_t bits = std::to_integer<uint32_t>(piece[place.byte]) >> place.shift;
        code |= (bits & ((1U << part.bits) - 1)) << low;
        low += part.bits;
    }
    return code;
}

namespace {

// Returns the functions of a codec whose values have codes.
const CodecFamily &family_of(const Codec &codec) {
    switch (codec.row().kind) {
    case CodecKind::minmax: return minmax_family;
    case CodecKind::mx: return mx_family;
    case CodecKind::scaled: return scaled_family;
    case CodecKind::nvfp4: return nvfp4_family;
    case CodecKind::onebit: return onebit_family;
    case CodecKind::terngrad: return terngrad_family;
    case CodecKind::topk: return topk_family;
    case CodecKind::norm: return norm_family;
    case CodecKind::tbq: return tbq_family;
    case CodecKind::integer:
    case CodecKind::plain: // none of these has codes
    case CodecKind::cast:
    case CodecKind::grid:
    case CodecKind::dummy: break;
    }
    return integer_family;
}

// ---- Encode

void copy(DataType out, void *dst, DataType in, const void *src, size_t count, bool) {
    if (out == in) {
        if (count != 0) std::memcpy(dst, src, count * type_bytes(out));
        return;
    }
    for (size_t i = 0; i < count; i++) store_float(out, dst, i, load_float(in, src, i));
}

// A cast computes, so that NaN becomes canonical even if the format is the input's own.
template <class F>
void encode_cast(const ChunkRange &range, const Noise &noise, DataType in, const void *src,
                 std::byte *payload) {
    for (uint64_t i = 0; i < range.count; i++) {
        const double x = load_float(in, src, i);
        const Draw draw = draw_of(range, noise, range.begin + i);
        const uint32_t bits = draw.k == Draw::nearest ? narrow<F, Overflow::saturate>(x)
                                                      : narrow_by_chance<F>(x, draw.k);
        store_bits(payload, range.begin + i, static_cast<Storage<F>>(bits));
    }
}

// A relative bound's range is the whole chunk.
template <class T>
float step_for(const ChunkRange &range, DataType in, const void *src, std::byte *payload) {
    if (!range.codec->is_relative) return grid_step(range.codec->bound);
    T low = std::numeric_limits<T>::infinity(), high = -low;
    bool are_finite = true;
    for (uint64_t i = 0; i < range.count; i++) {
        const T x = static_cast<T>(load_float(in, src, i));
        low = least(x, low);
        high = greatest(x, high);
        are_finite &= is_finite(x);
    }
    const float step = range_step(low, high, are_finite, range.codec->bound);
    if (range.whole != 0) store_bits(payload + range.layout->scales, 0, step);
    return step;
}

template <class T>
void encode_on_grid(const ChunkRange &range, DataType in, const void *src, std::byte *payload) {
    const auto round_all = [&](const auto &grid) {
        for (uint64_t i = 0; i < range.count; i++)
            store_bits(payload, range.begin + i,
                       grid.rounded(static_cast<T>(load_float(in, src, i))));
    };
    if (range.codec->is_pointwise)
        return round_all(PointGrid<T>(kept_fraction_bits(range.codec->bound)));
    round_all(ValueGrid<T>(step_for<T>(range, in, src, payload)));
}

void encode_codes(const ChunkRange &range, const Noise &noise, DataType in, const void *src,
                  std::byte *payload) {
    family_of(*range.codec).encode(range, noise, in, src, payload);
    const uint64_t end = range.begin + range.count, coded = coded_end(range) - range.begin;
    if (end == range.whole) clear_gaps(*range.codec, *range.layout, payload);
    copy(range.type, payload + range.layout->raw, in,
         static_cast<const std::byte *>(src) + coded * type_bytes(in), range.count - coded, false);
}

void encode(const ChunkRange &range, const Noise &noise, DataType in, const void *src,
            std::byte *payload) {
    const CodecRow &row = range.codec->row();
    if (range.codec->rotation != 0)
        return encode_rotated(scalar_rotation_steps(), range, noise, in, src, payload);
    if (row.kind == CodecKind::plain)
        return copy(range.type, payload + range.begin * type_bytes(range.type), in, src,
                    range.count, false);
    if (row.kind == CodecKind::dummy)
        return copy(range.type, payload + range.begin * type_bytes(range.type), in, src,
                    range.first_values(), false);
    if (row.kind == CodecKind::grid)
        return accumulator_of(range.type) == DataType::float64
                   ? encode_on_grid<double>(range, in, src, payload)
                   : encode_on_grid<float>(range, in, src, payload);
    if (!row.cast) return encode_codes(range, noise, in, src, payload);
    with_narrow_format(*row.cast,
                       [&]<class F>(F) { encode_cast<F>(range, noise, in, src, payload); });
}

// ---- Decode

// Values that are sent as they are, or cast: their format, and where the range's first one lies.
struct PlainValues {
    DataType format;
    const std::byte *start;
};
PlainValues plain_values(const ChunkRange &range, const std::byte *payload) {
    const Codec &codec = *range.codec;
    // Other codecs: the values behind the coded ones.
    if (!codec.is_plain()) return {range.type, payload + range.layout->raw};
    const DataType format = codec.plain_type(range.type);
    return {format, payload + range.begin * type_bytes(format)};
}

constexpr size_t decoded_values = 512; // at a time

// Calls take(i, values, count) for the range's elements that have codes, some at a time. i counts
// from the range's start.
template <class Take>
void each_decoded(const ChunkRange &range, const std::byte *payload, Take &&take) {
    const uint64_t coded = coded_end(range) - range.begin;
    double values[decoded_values];
    for (uint64_t i = 0; i < coded; i += decoded_values) {
        const size_t count = std::min<uint64_t>(decoded_values, coded - i);
        family_of(*range.codec).decode(range, payload, range.begin + i, count, values);
        take(i, values, count);
    }
}

void decode(const ChunkRange &range, const std::byte *payload, DataType out, void *dst, bool) {
    if (range.codec->rotation != 0)
        return decode_rotated(scalar_rotation_steps(), range, payload, out, dst, false);
    if (range.codec->row().kind == CodecKind::dummy) {
        const size_t kept = range.first_values();
        copy(out, dst, range.type, payload + range.begin * type_bytes(range.type), kept, false);
        std::fill(static_cast<std::byte *>(dst) + kept * type_bytes(out),
                  static_cast<std::byte *>(dst) + range.count * type_bytes(out), std::byte{0});
        return;
    }
    each_decoded(range, payload, [&](uint64_t at, const double *values, size_t count) {
        for (size_t i = 0; i < count; i++) store_float(out, dst, at + i, values[i]);
    });
    const uint64_t coded = coded_end(range) - range.begin;
    const PlainValues plain = plain_values(range, payload);
    // A multiple may be beyond the type's largest number although the value was not.
    if (range.codec->has_grid() && type_bytes(out) < sizeof(float))
        return with_narrow_format(out, [&]<class F>(F) {
            for (uint64_t i = 0; i < range.count; i++)
                store_bits(dst, i,
                           static_cast<Storage<F>>(narrow<F, Overflow::saturate>(
                               load_float(plain.format, plain.start, i))));
        });
    copy(out, static_cast<std::byte *>(dst) + coded * type_bytes(out), plain.format, plain.start,
         range.count - coded, false);
}

void decode_add(const ChunkRange &range, RedOp op, const std::byte *payload, void *accumulator) {
    if (range.codec->rotation != 0)
        return decode_add_rotated(scalar_rotation_steps(), range, op, payload, accumulator);
    with_accumulator(accumulator_of(range.type), [&]<class T>(T) {
        const auto add = [&](uint64_t i, T value) {
            store_bits(accumulator, i, combine(op, load_bits<T>(accumulator, i), value));
        };
        if constexpr (std::floating_point<T>) {
            if (range.codec->row().kind == CodecKind::dummy) {
                const std::byte *const start = payload + range.begin * type_bytes(range.type);
                const size_t kept = range.first_values();
                for (uint64_t i = 0; i < range.count; i++)
                    add(i, i < kept ? load_as<T>(range.type, start, i) : T(0));
                return;
            }
            each_decoded(range, payload, [&](uint64_t at, const double *values, size_t count) {
                for (size_t i = 0; i < count; i++) add(at + i, static_cast<T>(values[i]));
            });
        }
        const uint64_t coded = coded_end(range) - range.begin;
        const PlainValues plain = plain_values(range, payload);
        for (uint64_t i = coded; i < range.count; i++)
            add(i, load_as<T>(plain.format, plain.start, i - coded));
    });
}

// ---- Without a codec

void reduce(RedOp op, DataType accumulator_type, void *accumulator, DataType in, const void *src,
            size_t count) {
    with_accumulator(accumulator_type, [&]<class T>(T) {
        for (size_t i = 0; i < count; i++)
            store_bits(accumulator, i,
                       combine(op, load_bits<T>(accumulator, i), load_as<T>(in, src, i)));
    });
}

void divide(DataType accumulator_type, void *accumulator, size_t count, uint32_t ranks) {
    with_accumulator(accumulator_type, [&]<class T>(T) {
        for (size_t i = 0; i < count; i++)
            store_bits(accumulator, i, divided(load_bits<T>(accumulator, i), ranks));
    });
}

void keep_error(DataType accumulator_type, void *residual, const void *values, const void *decoded,
                size_t count, uint32_t factor, void *velocity) {
    with_accumulator(accumulator_type, [&]<class T>(T) {
        if constexpr (std::floating_point<T>)
            for (size_t i = 0; i < count; i++) {
                const T got = load_bits<T>(decoded, i);
                store_bits(
                    residual, i,
                    kept_error(load_bits<T>(residual, i), load_bits<T>(values, i), got, factor));
                if (velocity)
                    store_bits(velocity, i, masked_velocity(load_bits<T>(velocity, i), got));
            }
    });
}

void add_velocity(DataType accumulator_type, void *values, void *velocity, const void *before,
                  size_t count, uint32_t momentum) {
    with_accumulator(accumulator_type, [&]<class T>(T) {
        if constexpr (std::floating_point<T>)
            for (size_t i = 0; i < count; i++) {
                const T next = next_velocity(load_bits<T>(before, i), momentum_of<T>(momentum),
                                             load_bits<T>(values, i));
                store_bits(values, i, next);
                store_bits(velocity, i, finite_velocity(next));
            }
    });
}

// ---- Sums that are rounded once

void begin_exact(DataType in, void *sums, const void *src, size_t count) {
    auto *const blocks = static_cast<ExactBlock *>(sums);
    for (size_t i = 0; i < count; i++) {
        ExactBlock &block = blocks[i / ExactBlock::values];
        const size_t value = i % ExactBlock::values;
        if (value == 0) {
            block.long_values = 0;
            block.depth = 1;
        }
        block.plane[0][value] = -0.0; // changes no sum
        block.long_of(value).add(load_float(in, src, i));
    }
}

void add_exact(DataType in, void *sums, const void *src, size_t count) {
    auto *const blocks = static_cast<ExactBlock *>(sums);
    for (size_t i = 0; i < count; i++)
        blocks[i / ExactBlock::values].long_of(i % ExactBlock::values).add(load_float(in, src, i));
}

void round_exact(DataType out, void *dst, const void *sums, size_t count, uint32_t ranks) {
    const auto *const blocks = static_cast<const ExactBlock *>(sums);
    for (size_t i = 0; i < count; i++)
        store_float(
            out, dst, i,
            exact_result(blocks[i / ExactBlock::values].total(i % ExactBlock::values), out, ranks));
}

// ---- Integers under shared scales

void find_magnitudes(uint32_t *greatest, const float *x, size_t count, size_t block) {
    for (size_t i = 0; i < count; i++) {
        uint32_t &all = greatest[i / block];
        all = std::max(all, std::bit_cast<uint32_t>(x[i]) & 0x7FFFFFFF);
    }
}

void to_integers(float *integers, const float *x, const uint16_t *scales, size_t count,
                 size_t block) {
    for (size_t i = 0; i < count; i++) integers[i] = integer_of(x[i], scales[i / block]);
}

void from_integers(float *y, const float *sums, const uint16_t *scales, size_t count, size_t block,
                   uint32_t ranks) {
    for (size_t i = 0; i < count; i++) y[i] = value_of_sum(sums[i], scales[i / block], ranks);
}

// ---- Packing

size_t pack(const ChunkRange &whole, const std::byte *payload, std::byte *packed,
            PackScratch &scratch) {
    return pack_with(scalar_pack_steps, whole, payload, packed, scratch);
}

bool unpack(const ChunkRange &whole, std::span<const std::byte> packed, std::byte *payload,
            PackScratch &scratch) {
    return unpack_with(scalar_pack_steps, whole, packed, payload, scratch);
}

} // namespace

const Kernels &scalar_kernels() {
    static constexpr Kernels kernels{
        .tier = Tier::scalar,
        .encode = encode,
        .decode = decode,
        .decode_add = decode_add,
        .reduce = reduce,
        .copy = copy,
        .divide = divide,
        .keep_error = keep_error,
        .add_velocity = add_velocity,
        .begin_exact = begin_exact,
        .add_exact = add_exact,
        .round_exact = round_exact,
        .find_magnitudes = find_magnitudes,
        .to_integers = to_integers,
        .from_integers = from_integers,
        .pack = pack,
        .unpack = unpack,
    };
    return kernels;
}

} // namespace qccl
