// Implements error_model.hpp: the measured bounds of the errors of codecs that auto may choose.
#include "codec/error_model.hpp"

#include "codec/codec.hpp"

#include <algorithm>
#include <iterator>

namespace qccl {

namespace {

// A ring of 64 ranks encodes a value 32.5 times on average.
constexpr double encodes_of_64 = 32.5, encodes_of_16 = 8.5, encodes_of_8 = 4.5;

constexpr Codec with(Codec codec, uint8_t bits, uint32_t bucket) {
    codec.bits = bits;
    codec.bucket = bucket;
    return codec;
}

constexpr BoundedCodec integers(uint8_t bits, uint32_t block, double nmse,
                                double most_encodes = encodes_of_64) {
    return {with(usual_codec("int"), bits, block), nmse, most_encodes};
}

constexpr BoundedCodec table[] = {
    integers(2, 32, 0.21),
    integers(2, 16, 0.147, encodes_of_16),
    integers(3, 32, 0.08),
    integers(3, 16, 0.05),
    integers(4, 32, 0.0285),
    {usual_codec("nvfp4"), 0.0115, encodes_of_16},
    integers(4, 16, 0.0157),
    integers(5, 32, 0.0084),
    integers(5, 16, 0.0043),
    integers(6, 32, 0.0029),
    integers(6, 16, 0.00143),
    {with(usual_codec("minmax"), 7, 64), 0.00078, encodes_of_8},
    integers(8, 32, 0.00018),
    integers(8, 16, 0.00009, encodes_of_16),
    integers(8, 8, 0.000047, encodes_of_16),
    integers(10, 32, 0.0000112),
    integers(10, 16, 0.0000056, encodes_of_16),
    integers(10, 8, 0.0000029, encodes_of_16),
    integers(12, 32, 0.0000007, encodes_of_16),
    integers(12, 16, 0.00000035, encodes_of_16),
    integers(12, 8, 0.00000019, encodes_of_16),
    {usual_codec("bf16"), 0.0000045, encodes_of_8},
};

// Whether a codec has bounds here exactly if its row says that auto may choose it.
constexpr bool are_bounds_those_of_auto() {
    for (const CodecRow &row : codec_table) {
        const bool is_bounded = std::ranges::any_of(
            table, [&](const BoundedCodec &bound) { return bound.codec.id == row.id; });
        if (is_bounded != (row.auto_position != 0)) return false;
    }
    return true;
}
static_assert(are_bounds_those_of_auto());

} // namespace

std::span<const BoundedCodec> bounded_codecs() { return table; }

const BoundedCodec *bound_of(const Codec &codec) {
    const auto *const found = std::ranges::find(table, codec.without_use(), &BoundedCodec::codec);
    return found == std::end(table) ? nullptr : found;
}

} // namespace qccl
