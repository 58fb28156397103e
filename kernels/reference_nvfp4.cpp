// The scalar reference of `nvfp4`. Called through its CodecFamily.
#include "kernels/nvfp4_block.hpp"
#include "kernels/reference_family.hpp"

namespace qccl {
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

void encode(const ChunkRange &range, const Noise &noise, DataType in, const void *src,
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

void decode(const ChunkRange &range, const std::byte *payload, uint64_t first, size_t count,
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

const CodecFamily nvfp4_family{.encode = encode, .decode = decode};

} // namespace qccl
