// The scalar reference of `int b`. Called through its CodecFamily.
#include "kernels/integer_block.hpp"
#include "kernels/reference_family.hpp"

namespace qccl {
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

void encode(const ChunkRange &range, const Noise &noise, DataType in, const void *src,
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

void decode(const ChunkRange &range, const std::byte *payload, uint64_t first, size_t count,
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

const CodecFamily integer_family{.encode = encode, .decode = decode};

} // namespace qccl
