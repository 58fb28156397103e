// The scalar reference: WIRE.md in C++, one value at a time. Every other tier and device gives the
// same bytes. Clear before fast.
#include "kernels/block.hpp"
#include "kernels/kernels.hpp"
#include "kernels/philox.hpp"
#include "kernels/value.hpp"

#include <algorithm>
#include <array>

namespace qccl {
namespace {

// The elements that have codes, and those behind them that travel as values.
struct Parts {
    uint64_t begin, coded_end, end;
};
Parts parts_of(const ChunkRange &range) {
    const uint64_t end = range.begin + range.count;
    return {range.begin, std::clamp(range.layout->coded, range.begin, end), end};
}

uint64_t bucket_values(const ChunkRange &range) {
    return range.codec->bucket == Codec::whole_chunk ? range.whole : range.codec->bucket;
}

Draw draw_of(const ChunkRange &range, const Noise &noise, uint64_t element) {
    if (range.codec->rounding == Rounding::nearest) return {};
    return {noise_draw(noise.key, noise.call, noise.first_index + element)};
}

// ---- Codes in their planes

using GroupCodes = std::array<uint32_t, group_values>;

// Where a group's value lies in its piece of a plane.
struct Place {
    size_t byte;
    unsigned shift;
};
Place place_of(const PlanePart &part, size_t value) {
    if (part.bits == 1) return {value / 8, static_cast<unsigned>(value % 8)};
    const size_t bytes = part.group_bytes();
    return {value % bytes, static_cast<unsigned>(value / bytes) * part.bits};
}

void write_group(const ChunkRange &range, std::byte *payload, uint64_t group,
                 const GroupCodes &codes) {
    unsigned low = 0; // first bit of the code that lies in the plane
    for (const PlanePart &part : plane_parts) {
        if ((range.codec->bits & part.bits) == 0) continue;
        std::byte *piece = payload + range.layout->*part.start + group * part.group_bytes();
        std::fill_n(piece, part.group_bytes(), std::byte{0});
        for (size_t value = 0; value < group_values; value++) {
            const Place place = place_of(part, value);
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
        const Place place = place_of(part, element % group_values);
        const uint32_t bits = std::to_integer<uint32_t>(piece[place.byte]) >> place.shift;
        code |= (bits & ((1U << part.bits) - 1)) << low;
        low += part.bits;
    }
    return code;
}

// ---- int b

// A double beyond fp32 becomes an infinity here, and its block NaN.
float block_input(DataType in, const void *src, uint64_t i) {
    return narrow_to_float(load_float(in, src, i));
}

BlockScale scale_of_block(unsigned bits, DataType in, const void *src, uint64_t begin,
                          uint64_t end) {
    float extreme = 0;
    bool are_finite = true;
    for (uint64_t i = begin; i < end; i++) {
        const float x = block_input(in, src, i);
        are_finite = are_finite && is_finite(x);
        if (are_finite) extreme = extreme_of(extreme, x);
    }
    return block_scale(extreme, are_finite, bits);
}

// ---- minmax

template <class T>
BucketScale<T> scale_of_bucket(unsigned bits, DataType in, const void *src, uint64_t begin,
                               uint64_t end) {
    T low = load_as<T>(in, src, begin), high = low;
    bool are_finite = true;
    for (uint64_t i = begin; i < end; i++) {
        const T x = load_as<T>(in, src, i);
        are_finite = are_finite && is_finite(x);
        low = minimum(low, x);
        high = maximum(high, x);
    }
    return bucket_scale(low, high, are_finite, bits);
}

// ---- Encode

// Fills the groups of [begin, coded_end) with what `code(element)` gives, in order.
template <class Code> void encode_groups(const ChunkRange &range, std::byte *payload, Code &&code) {
    const Parts parts = parts_of(range);
    for (uint64_t start = parts.begin; start < parts.coded_end; start += group_values) {
        GroupCodes codes{};
        const uint64_t end = std::min(start + group_values, parts.coded_end);
        for (uint64_t i = start; i < end; i++) codes[i - start] = code(i);
        write_group(range, payload, start / group_values, codes);
    }
}

void encode_integer(const ChunkRange &range, const Noise &noise, DataType in, const void *src,
                    std::byte *payload) {
    const uint64_t block = bucket_values(range), first = range.begin,
                   end = parts_of(range).coded_end;
    const unsigned bits = range.codec->bits;
    BlockScale scale;
    encode_groups(range, payload, [&](uint64_t i) {
        if (i % block == 0) {
            scale = scale_of_block(bits, in, src, i - first, std::min(i + block, end) - first);
            store_bits(payload + range.layout->scales, i / block, scale.wire);
        }
        const int32_t code =
            block_code(block_input(in, src, i - first), scale, bits, draw_of(range, noise, i));
        return static_cast<uint32_t>(code) & ((1U << bits) - 1); // two's complement
    });
}

template <class T>
void encode_minmax(const ChunkRange &range, const Noise &noise, DataType in, const void *src,
                   std::byte *payload) {
    const uint64_t bucket = bucket_values(range), first = range.begin,
                   end = parts_of(range).coded_end;
    const unsigned bits = range.codec->bits;
    BucketScale<T> scale;
    encode_groups(range, payload, [&](uint64_t i) {
        if (i % bucket == 0) {
            scale = scale_of_bucket<T>(bits, in, src, i - first, std::min(i + bucket, end) - first);
            store_bits(payload + range.layout->scales, i / bucket * 2, scale.minimum);
            store_bits(payload + range.layout->scales, i / bucket * 2 + 1, scale.unit);
        }
        return bucket_code(load_as<T>(in, src, i - first), scale, bits, draw_of(range, noise, i));
    });
}

void copy(DataType out, void *dst, DataType in, const void *src, size_t count, bool) {
    if (out == in) {
        if (count != 0) std::memcpy(dst, src, count * type_bytes(out));
        return;
    }
    for (size_t i = 0; i < count; i++) store_float(out, dst, i, load_float(in, src, i));
}

// A cast computes, so that NaN becomes canonical also where the format is the input's own.
template <class F>
void encode_cast(const ChunkRange &range, DataType in, const void *src, std::byte *payload) {
    for (uint64_t i = 0; i < range.count; i++)
        store_bits(payload, range.begin + i,
                   static_cast<Storage<F>>(narrow<F, Overflow::saturate>(load_float(in, src, i))));
}

void encode(const ChunkRange &range, const Noise &noise, DataType in, const void *src,
            std::byte *payload) {
    switch (range.codec->id) {
    case CodecId::none:
        return copy(range.type, payload + range.begin * type_bytes(range.type), in, src,
                    range.count, false);
    case CodecId::fp16: return encode_cast<Half>(range, in, src, payload);
    case CodecId::bf16: return encode_cast<Bfloat>(range, in, src, payload);
    case CodecId::fp8e4m3: return encode_cast<E4m3>(range, in, src, payload);
    case CodecId::fp8e5m2: return encode_cast<E5m2>(range, in, src, payload);
    case CodecId::integer: encode_integer(range, noise, in, src, payload); break;
    case CodecId::minmax:
        if (range.type == DataType::float64)
            encode_minmax<double>(range, noise, in, src, payload);
        else
            encode_minmax<float>(range, noise, in, src, payload);
        break;
    }
    const Parts parts = parts_of(range);
    if (parts.end == range.whole) clear_gaps(*range.codec, *range.layout, payload);
    const uint64_t coded = parts.coded_end - parts.begin;
    copy(range.type, payload + range.layout->raw, in,
         static_cast<const std::byte *>(src) + coded * type_bytes(in), parts.end - parts.coded_end,
         false);
}

// ---- Decode

// Values that travel as they are, or cast: their format, and where the range's first one lies.
struct PlainValues {
    DataType format;
    const std::byte *start;
};
PlainValues plain_values(const ChunkRange &range, const std::byte *payload) {
    const Codec &codec = *range.codec;
    // Else the values behind the coded ones.
    if (!codec.is_lossless() && !codec.is_cast()) return {range.type, payload + range.layout->raw};
    const DataType format = codec.plain_type(range.type);
    return {format, payload + range.begin * type_bytes(format)};
}

// What an element's code and scale give, in the accumulator's precision.
template <class T>
T coded_value(const ChunkRange &range, const std::byte *payload, uint64_t element) {
    const uint64_t bucket = element / bucket_values(range);
    const std::byte *scales = payload + range.layout->scales;
    const unsigned bits = range.codec->bits;
    const uint32_t code = read_code(range, payload, element);
    if (range.codec->id == CodecId::minmax)
        return bucket_value<T>(code, load_bits<float>(scales, bucket * 2),
                               load_bits<float>(scales, bucket * 2 + 1));
    const uint32_t sign = 1U << (bits - 1);
    const int32_t number = static_cast<int32_t>(code ^ sign) - static_cast<int32_t>(sign);
    return static_cast<T>(block_value(number, widen<Bfloat>(load_bits<uint16_t>(scales, bucket))));
}

template <class T>
void decode_codes(const ChunkRange &range, const std::byte *payload, DataType out, void *dst) {
    const Parts parts = parts_of(range);
    for (uint64_t i = parts.begin; i < parts.coded_end; i++)
        store_float(out, dst, i - parts.begin, coded_value<T>(range, payload, i));
}

void decode(const ChunkRange &range, const std::byte *payload, DataType out, void *dst, bool) {
    if (range.type == DataType::float64)
        decode_codes<double>(range, payload, out, dst);
    else
        decode_codes<float>(range, payload, out, dst);
    const Parts parts = parts_of(range);
    const uint64_t coded = parts.coded_end - parts.begin;
    const PlainValues plain = plain_values(range, payload);
    copy(out, static_cast<std::byte *>(dst) + coded * type_bytes(out), plain.format, plain.start,
         range.count - coded, false);
}

void decode_add(const ChunkRange &range, RedOp op, const std::byte *payload, void *accumulator) {
    with_accumulator(accumulator_of(range.type), [&]<class T>(T) {
        const Parts parts = parts_of(range);
        const uint64_t coded = parts.coded_end - parts.begin;
        const PlainValues plain = plain_values(range, payload);
        for (uint64_t i = 0; i < range.count; i++) {
            T value{};
            if (i >= coded)
                value = load_as<T>(plain.format, plain.start, i - coded);
            else if constexpr (std::floating_point<T>)
                value = coded_value<T>(range, payload, range.begin + i);
            store_bits(accumulator, i, combine(op, load_bits<T>(accumulator, i), value));
        }
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
    };
    return kernels;
}

} // namespace qccl
