// The scalar reference of `terngrad`. Called through its CodecFamily.
#include "kernels/pinned_sum.hpp"
#include "kernels/reference_family.hpp"
#include "kernels/terngrad_block.hpp"

namespace qccl {
namespace {

TerngradScale scale_of_bucket(const Codec &codec, DataType in, const void *src, uint64_t begin,
                              uint64_t end) {
    const uint32_t largest = largest_magnitude(in, src, begin, end);
    const float lift = terngrad_lift(largest);
    const float squares = pinned_sum(end - begin, [&](uint64_t i) {
        const float x = block_input(in, src, begin + i) * lift;
        return x * x;
    });
    return terngrad_scale(largest, squares, end - begin, codec.clip);
}

void encode(const ChunkRange &range, const Noise &noise, DataType in, const void *src,
            std::byte *payload) {
    const uint64_t bucket = range.codec->bucket, end = coded_end(range);
    for (uint64_t begin = range.begin; begin < end; begin += bucket) {
        const uint64_t count = std::min(bucket, end - begin), bytes = ternary_bytes(count);
        const uint64_t number = begin / bucket;
        const TerngradScale scale = scale_of_bucket(*range.codec, in, src, begin - range.begin,
                                                    begin + count - range.begin);
        store_bits(payload + range.layout->scales, number, scale.wire);
        std::byte *const packed = payload + range.layout->digits + number * ternary_bytes(bucket);
        for (uint64_t byte = 0; byte < bytes; byte++) {
            uint32_t digits = 0, power = 1;
            for (uint64_t i = byte; i < count; i += bytes, power *= 3)
                digits += power * terngrad_digit(block_input(in, src, begin + i - range.begin),
                                                 scale, draw_of(range, noise, begin + i));
            packed[byte] = static_cast<std::byte>(digits);
        }
    }
}

void decode(const ChunkRange &range, const std::byte *payload, uint64_t first, size_t count,
            double *values) {
    static constexpr uint32_t powers[] = {1, 3, 9, 27, 81};
    const uint64_t bucket = range.codec->bucket;
    for (size_t i = 0; i < count; i++) {
        const uint64_t number = (first + i) / bucket, at = (first + i) % bucket;
        const uint64_t bytes =
            ternary_bytes(std::min(bucket, range.layout->coded - number * bucket));
        const std::byte packed =
            payload[range.layout->digits + number * ternary_bytes(bucket) + at % bytes];
        const uint32_t digit = std::to_integer<uint32_t>(packed) / powers[at / bytes] % 3;
        values[i] = terngrad_value(digit, load_bits<float>(payload + range.layout->scales, number));
    }
}

} // namespace

const CodecFamily terngrad_family{.encode = encode, .decode = decode};

} // namespace qccl
