// The scalar reference of the codecs whose blocks share a scale: `int b`, `minmax`, the MX codecs
// and `nvfp4`. Called through their CodecFamily.

#include "kernels/codec/reference_family.hpp"
#include "kernels/codec/small_float_block.hpp"
#include "kernels/codec/uniform_block.hpp"

namespace qccl {

// ---- int b

namespace {

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

void encode_integer(const ChunkRange &range, const Noise &noise, DataType in, const void *src,
                    std::byte *payload) {
    const uint64_t block = bucket_values(range), first = range.begin, end = coded_end(range);
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

void decode_integer(const ChunkRange &range, const std::byte *payload, uint64_t first, size_t count,
                    double *values) {
    const uint32_t sign = 1U << (range.codec->bits - 1);
    for (size_t i = 0; i < count; i++) {
        const auto scale =
            load_bits<uint16_t>(payload + range.layout->scales, (first + i) / bucket_values(range));
        const uint32_t code = read_code(range, payload, first + i);
        const int32_t number = static_cast<int32_t>(code ^ sign) - static_cast<int32_t>(sign);
        values[i] = block_value(number, widen<Bfloat>(scale));
    }
}

} // namespace

const CodecFamily integer_family{.encode = encode_integer, .decode = decode_integer};

// ---- minmax

namespace {

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

template <class T>
void encode_minmax_as(const ChunkRange &range, const Noise &noise, DataType in, const void *src,
                      std::byte *payload) {
    const uint64_t bucket = bucket_values(range), first = range.begin, end = coded_end(range);
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

void encode_minmax(const ChunkRange &range, const Noise &noise, DataType in, const void *src,
                   std::byte *payload) {
    if (range.type == DataType::float64)
        encode_minmax_as<double>(range, noise, in, src, payload);
    else
        encode_minmax_as<float>(range, noise, in, src, payload);
}

void decode_minmax(const ChunkRange &range, const std::byte *payload, uint64_t first, size_t count,
                   double *values) {
    const std::byte *scales = payload + range.layout->scales;
    for (size_t i = 0; i < count; i++) {
        const uint64_t bucket = (first + i) / bucket_values(range);
        const auto minimum = load_bits<float>(scales, bucket * 2),
                   unit = load_bits<float>(scales, bucket * 2 + 1);
        const uint32_t code = read_code(range, payload, first + i);
        values[i] = range.type == DataType::float64 ? bucket_value<double>(code, minimum, unit)
                                                    : bucket_value<float>(code, minimum, unit);
    }
}

} // namespace

const CodecFamily minmax_family{.encode = encode_minmax, .decode = decode_minmax};

// ---- MX

namespace {

// Calls f with a value of the element's format.
template <class Call> void with_element(CodecId id, Call &&call) {
    switch (id) {
    case CodecId::mxfp8e4m3: return call(E4m3{});
    case CodecId::mxfp6e2m3: return call(E2m3{});
    default: return call(E2m1{});
    }
}

template <class F>
void encode_mx_as(const ChunkRange &range, const Noise &noise, DataType in, const void *src,
                  std::byte *payload) {
    const uint64_t first = range.begin, end = coded_end(range), block = range.codec->bucket;
    const bool rounds_up = range.codec->scaling == Scaling::ceil;
    MxScale scale;
    encode_groups(range, payload, [&](uint64_t i) {
        if (i % block == 0) {
            scale = mx_scale<F>(
                largest_magnitude(in, src, i - first, std::min(i + block, end) - first), rounds_up);
            store_bits(payload + range.layout->scales, i / block, scale.wire);
        }
        return mx_code<F>(block_input(in, src, i - first), scale, draw_of(range, noise, i));
    });
}

void encode_mx(const ChunkRange &range, const Noise &noise, DataType in, const void *src,
               std::byte *payload) {
    with_element(range.codec->id,
                 [&]<class F>(F) { encode_mx_as<F>(range, noise, in, src, payload); });
}

void decode_mx(const ChunkRange &range, const std::byte *payload, uint64_t first, size_t count,
               double *values) {
    const std::byte *scales = payload + range.layout->scales;
    with_element(range.codec->id, [&]<class F>(F) {
        for (size_t i = 0; i < count; i++)
            values[i] = mx_value<F>(read_code(range, payload, first + i),
                                    load_bits<uint8_t>(scales, (first + i) / range.codec->bucket));
    });
}

} // namespace

const CodecFamily mx_family{.encode = encode_mx, .decode = decode_mx};

// ---- nvfp4

namespace {

constexpr uint64_t block = nvfp4_block_values;

Nvfp4Base base_of_bucket(DataType in, const void *src, uint64_t begin, uint64_t end) {
    uint32_t largest = 0;
    for (uint64_t i = begin; i < end; i += block)
        if (const uint32_t here = largest_magnitude(in, src, i, std::min(i + block, end));
            here < float_infinity)
            largest = std::max(largest, here);
    return nvfp4_base(largest);
}

void encode_nvfp4(const ChunkRange &range, const Noise &noise, DataType in, const void *src,
                  std::byte *payload) {
    const uint64_t bucket = bucket_values(range), first = range.begin, end = coded_end(range);
    const bool rounds_up = range.codec->scaling == Scaling::ceil;
    Nvfp4Base base;
    Nvfp4Scale scale;
    encode_groups(range, payload, [&](uint64_t i) {
        if (i % bucket == 0) {
            base = base_of_bucket(in, src, i - first, std::min(i + bucket, end) - first);
            store_bits(payload + range.layout->bases, i / bucket, base.wire);
        }
        if (i % block == 0) {
            scale =
                nvfp4_scale(largest_magnitude(in, src, i - first, std::min(i + block, end) - first),
                            base, rounds_up);
            store_bits(payload + range.layout->scales, i / block, scale.wire);
        }
        return nvfp4_code(block_input(in, src, i - first), scale, draw_of(range, noise, i));
    });
}

void decode_nvfp4(const ChunkRange &range, const std::byte *payload, uint64_t first, size_t count,
                  double *values) {
    for (size_t i = 0; i < count; i++) {
        const uint64_t element = first + i;
        values[i] = nvfp4_value(
            read_code(range, payload, element),
            load_bits<uint8_t>(payload + range.layout->scales, element / block),
            load_bits<float>(payload + range.layout->bases, element / bucket_values(range)));
    }
}

} // namespace

const CodecFamily nvfp4_family{.encode = encode_nvfp4, .decode = decode_nvfp4};

} // namespace qccl
