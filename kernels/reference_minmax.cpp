// The scalar reference of `minmax`. Called through its CodecFamily.
#include "kernels/minmax_block.hpp"
#include "kernels/reference_family.hpp"

namespace qccl {
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
void encode_as(const ChunkRange &range, const Noise &noise, DataType in, const void *src,
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

void encode(const ChunkRange &range, const Noise &noise, DataType in, const void *src,
            std::byte *payload) {
    if (range.type == DataType::float64)
        encode_as<double>(range, noise, in, src, payload);
    else
        encode_as<float>(range, noise, in, src, payload);
}

void decode(const ChunkRange &range, const std::byte *payload, uint64_t first, size_t count,
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

const CodecFamily minmax_family{.encode = encode, .decode = decode};

} // namespace qccl
