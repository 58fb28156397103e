// How fast one core encodes and decodes with each codec, by the SIMD tier of its kernels. Used by
// the cost model. The figures are data of the library, so that no choice depends on a measurement
// at run time. Pure data; any thread.
#pragma once

#include "codec/codec.hpp"

#include <array>
#include <span>
#include <string_view>
#include <vector>

namespace qccl {

// Bytes of unencoded values a nanosecond, which is GB/s.
struct CodecRate {
    float encode = 0, decode = 0, decode_add = 0;

    bool operator==(const CodecRate &) const = default;
};

// A measured row, for fp32.
struct CodecRateRow {
    std::string_view codec, tier;
    CodecRate rate;
};
std::span<const CodecRateRow> codec_rate_rows();
// Returns the codecs of these rows, each once.
std::vector<std::string_view> rated_codecs();

// The rates of each codec and rounding for fp32. Bits, buckets, clips and shares change a rate
// little. Block sizes change a rate only if no vector code handles them. Ranks exchange the object
// as bytes.
class CodecRates {
public:
    constexpr CodecRates() = default;
    // Rates of a device that is equally fast with all codecs.
    explicit CodecRates(const CodecRate &rate);
    // Returns the rates of a tier. An unknown name counts as `scalar`, the slowest tier.
    static CodecRates of_tier(std::string_view tier);

    // Returns the codec's rates. If no vector code handles its blocks, they are no higher than
    // those of the scalar code.
    CodecRate of(const Codec &codec) const;
    // Takes the slower rate of each operation, because ranks wait for the slowest one.
    void slow_down_to(const CodecRates &other);
    void set(const Codec &codec, const CodecRate &rate) { rates_[index(codec)] = rate; }
    // Takes over the rates of `others` that are not 0.
    void replace_by(const CodecRates &others);

    bool operator==(const CodecRates &) const = default;

private:
    static constexpr size_t codecs = static_cast<size_t>(CodecId::topk) + 1, roundings = 2;

    static size_t index(const Codec &codec) {
        return static_cast<size_t>(codec.id) * roundings + static_cast<size_t>(codec.rounding);
    }

    std::array<CodecRate, codecs * roundings> rates_{};
    uint64_t takes_any_block_ = 0; // a bool, in a type that leaves no padding bytes
};

} // namespace qccl
