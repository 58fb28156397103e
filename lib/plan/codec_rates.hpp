// How fast one core encodes and decodes with each codec, by the SIMD tier of its kernels. The
// figures are data of the library, so that no choice depends on a measurement at run time.
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

// A measured row, of fp32.
struct CodecRateRow {
    std::string_view codec, tier;
    CodecRate rate;
};
std::span<const CodecRateRow> codec_rate_rows();
// The codecs in it, each once.
std::vector<std::string_view> rated_codecs();

// A rate of fp32 for each codec and rounding; bits, buckets, clips and shares change it little, and
// blocks unless no vector code takes them.
// Travels between ranks as bytes.
class CodecRates {
public:
    constexpr CodecRates() = default;
    // Of a device that is as fast with all codecs.
    explicit CodecRates(const CodecRate &rate);
    // A name that is not known counts as `scalar`, the slowest tier.
    static CodecRates of_tier(std::string_view tier);

    // Of blocks that no vector code takes, not above what the scalar code does.
    CodecRate of(const Codec &codec) const;
    // Of each operation the slower: ranks wait for the slowest one.
    void slow_down_to(const CodecRates &other);
    void set(const Codec &codec, const CodecRate &rate) { rates_[index(codec)] = rate; }
    // By the others' but where those are 0.
    void replace_by(const CodecRates &others);

    bool operator==(const CodecRates &) const = default;

private:
    static constexpr size_t codecs = static_cast<size_t>(CodecId::topk) + 1, roundings = 2;

    static size_t index(const Codec &codec) {
        return static_cast<size_t>(codec.id) * roundings + static_cast<size_t>(codec.rounding);
    }

    std::array<CodecRate, codecs * roundings> rates_{};
    uint64_t takes_any_block_ = 0; // a number that leaves no bytes unsaid
};

} // namespace qccl
