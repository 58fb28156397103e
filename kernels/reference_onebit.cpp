// The scalar reference of `onebit`. Called through its CodecFamily.
#include "kernels/onebit_block.hpp"
#include "kernels/pinned_sum.hpp"
#include "kernels/reference_family.hpp"

namespace qccl {
namespace {

// Returns the mean of the values whose code is `code`.
float mean_of_bucket(uint32_t code, DataType in, const void *src, uint64_t begin, uint64_t end) {
    const auto sum_of = [&](float factor) {
        return pinned_sum(end - begin, [&](uint64_t i) {
            const float x = block_input(in, src, begin + i);
            return onebit_code(x) == code ? x * factor : 0.0F;
        });
    };
    uint64_t count = 0;
    for (uint64_t i = begin; i < end; i++) count += onebit_code(block_input(in, src, i)) == code;
    const float sum = sum_of(1);
    return is_finite(sum) ? onebit_mean(sum, count, 1)
                          : onebit_mean(sum_of(onebit_lowered), count, onebit_lowered);
}

void encode(const ChunkRange &range, const Noise &, DataType in, const void *src,
            std::byte *payload) {
    const uint64_t bucket = bucket_values(range), first = range.begin, end = coded_end(range);
    bool are_finite = false;
    encode_groups(range, payload, [&](uint64_t i) {
        if (i % bucket == 0) {
            const uint64_t from = i - first, to = std::min(i + bucket, end) - first;
            are_finite = is_finite(std::bit_cast<float>(largest_magnitude(in, src, from, to)));
            for (uint32_t code = 0; code < 2; code++)
                store_bits(payload + range.layout->scales, i / bucket * 2 + code,
                           are_finite ? mean_of_bucket(code, in, src, from, to)
                                      : std::bit_cast<float>(float_nan));
        }
        return are_finite ? onebit_code(block_input(in, src, i - first)) : 0;
    });
}

void decode(const ChunkRange &range, const std::byte *payload, uint64_t first, size_t count,
            double *values) {
    const std::byte *scales = payload + range.layout->scales;
    for (size_t i = 0; i < count; i++) {
        const uint64_t bucket = (first + i) / bucket_values(range);
        values[i] =
            onebit_value(read_code(range, payload, first + i), load_bits<float>(scales, bucket * 2),
                         load_bits<float>(scales, bucket * 2 + 1));
    }
}

} // namespace

const CodecFamily onebit_family{.encode = encode, .decode = decode};

} // namespace qccl
