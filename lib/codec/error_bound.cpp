// The table of measured error bounds.
#include "codec/error_bound.hpp"

#include "codec/payload.hpp"

#include <algorithm>

namespace qccl {
namespace {

// A ring of 64 ranks encodes a value 32.5 times on average.
constexpr double encodes_of_64 = 32.5, encodes_of_16 = 8.5, encodes_of_8 = 4.5;

constexpr BoundedCodec integers(uint8_t bits, uint32_t block, double nmse,
                                double most_encodes = encodes_of_64) {
    return {{.id = CodecId::integer, .bits = bits, .bucket = block}, nmse, most_encodes};
}

constexpr BoundedCodec table[] = {
    integers(2, 32, 0.21),
    integers(2, 16, 0.147, encodes_of_16),
    integers(3, 32, 0.08),
    integers(3, 16, 0.05),
    integers(4, 32, 0.0285),
    {{.id = CodecId::nvfp4, .bits = 4, .bucket = 1024, .scaling = Scaling::ocp},
     0.0115,
     encodes_of_16},
    integers(4, 16, 0.0157),
    integers(5, 32, 0.0084),
    integers(5, 16, 0.0043),
    integers(6, 32, 0.0029),
    integers(6, 16, 0.00143),
    {{.id = CodecId::minmax, .bits = 7, .bucket = 64}, 0.00078, encodes_of_8},
    integers(8, 32, 0.00018),
    integers(8, 16, 0.00009, encodes_of_16),
    integers(8, 8, 0.000047, encodes_of_16),
    integers(10, 32, 0.0000112),
    integers(10, 16, 0.0000056, encodes_of_16),
    integers(10, 8, 0.0000029, encodes_of_16),
    integers(12, 32, 0.0000007, encodes_of_16),
    integers(12, 16, 0.00000035, encodes_of_16),
    integers(12, 8, 0.00000019, encodes_of_16),
    {{.id = CodecId::bf16}, 0.0000045, encodes_of_8},
};

} // namespace

std::span<const BoundedCodec> bounded_codecs() { return table; }

const BoundedCodec *bound_of(const Codec &codec) {
    const auto *const found = std::ranges::find(table, codec, &BoundedCodec::codec);
    return found == std::end(table) ? nullptr : found;
}

double bits_per_value(const Codec &codec, DataType type) {
    constexpr uint64_t sample = uint64_t{1} << 20;
    return static_cast<double>(payload_layout(codec, type, sample).bytes) * 8 / sample;
}

} // namespace qccl
