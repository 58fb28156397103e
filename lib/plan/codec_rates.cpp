// The measured rates of the CPU kernels, and how a codec's parameters change them.
#include "plan/codec_rates.hpp"

#include "codec/payload.hpp"

#include <algorithm>

namespace qccl {

namespace {

// The output of `qccl-perf codec --rates -b 8M`, the better of two runs: medians for 8 MiB of
// evenly distributed values on one core of a Zen 5 virtual machine.
constexpr CodecRateRow rows[] = {
    // clang-format off
    {"fp16", "scalar", {0.54F, 0.93F, 0.89F}},
    {"fp16", "generic", {1.09F, 1.57F, 1.07F}},
    {"fp16", "sse4", {11.0F, 11.0F, 10.8F}},
    {"fp16", "avx2", {19.9F, 23.3F, 21.4F}},
    {"fp16", "avx512", {36.5F, 30.7F, 28.2F}},
    {"bf16", "scalar", {0.54F, 0.84F, 0.89F}},
    {"bf16", "generic", {1.47F, 4.38F, 1.98F}},
    {"bf16", "sse4", {14.3F, 23.3F, 26.4F}},
    {"bf16", "avx2", {26.6F, 36.7F, 47.4F}},
    {"bf16", "avx512", {50.0F, 36.0F, 54.3F}},
    {"fp8e4m3", "scalar", {0.53F, 0.99F, 0.90F}},
    {"fp8e4m3", "generic", {1.10F, 1.92F, 1.21F}},
    {"fp8e4m3", "sse4", {9.96F, 12.8F, 12.8F}},
    {"fp8e4m3", "avx2", {16.9F, 24.6F, 23.5F}},
    {"fp8e4m3", "avx512", {36.2F, 36.5F, 35.5F}},
    {"fp8e5m2", "scalar", {0.53F, 0.90F, 0.89F}},
    {"fp8e5m2", "generic", {1.10F, 1.60F, 1.06F}},
    {"fp8e5m2", "sse4", {9.97F, 11.4F, 10.7F}},
    {"fp8e5m2", "avx2", {17.3F, 21.0F, 21.7F}},
    {"fp8e5m2", "avx512", {31.2F, 36.0F, 29.5F}},
    {"int4", "scalar", {0.51F, 1.01F, 0.94F}},
    {"int4", "generic", {1.76F, 7.79F, 7.13F}},
    {"int4", "sse4", {17.6F, 14.2F, 24.4F}},
    {"int4", "avx2", {30.3F, 16.1F, 49.2F}},
    {"int4", "avx512", {29.5F, 16.1F, 72.7F}},
    {"int4:round=stochastic", "scalar", {0.25F, 1.04F, 0.96F}},
    {"int4:round=stochastic", "generic", {0.35F, 7.58F, 6.91F}},
    {"int4:round=stochastic", "sse4", {3.93F, 13.9F, 24.2F}},
    {"int4:round=stochastic", "avx2", {7.80F, 15.6F, 45.9F}},
    {"int4:round=stochastic", "avx512", {12.8F, 15.8F, 62.2F}},
    {"minmax", "scalar", {0.74F, 1.31F, 1.22F}},
    {"minmax", "generic", {2.15F, 8.11F, 5.93F}},
    {"minmax", "sse4", {18.5F, 14.4F, 29.3F}},
    {"minmax", "avx2", {39.7F, 15.4F, 47.8F}},
    {"minmax", "avx512", {43.9F, 15.1F, 54.2F}},
    {"minmax:round=stochastic", "scalar", {0.31F, 1.32F, 1.22F}},
    {"minmax:round=stochastic", "generic", {0.64F, 8.10F, 6.07F}},
    {"minmax:round=stochastic", "sse4", {3.95F, 14.3F, 27.9F}},
    {"minmax:round=stochastic", "avx2", {7.53F, 15.5F, 47.7F}},
    {"minmax:round=stochastic", "avx512", {15.5F, 15.4F, 53.3F}},
    {"mxfp8e4m3", "scalar", {0.60F, 0.51F, 0.49F}},
    {"mxfp8e4m3", "generic", {1.08F, 1.26F, 1.25F}},
    {"mxfp8e4m3", "sse4", {6.40F, 6.59F, 6.88F}},
    {"mxfp8e4m3", "avx2", {11.5F, 10.3F, 13.8F}},
    {"mxfp8e4m3", "avx512", {18.4F, 11.9F, 25.1F}},
    {"mxfp8e4m3:round=stochastic", "scalar", {0.27F, 0.50F, 0.48F}},
    {"mxfp8e4m3:round=stochastic", "generic", {0.62F, 1.26F, 1.23F}},
    {"mxfp8e4m3:round=stochastic", "sse4", {3.08F, 6.53F, 6.77F}},
    {"mxfp8e4m3:round=stochastic", "avx2", {5.73F, 10.8F, 14.2F}},
    {"mxfp8e4m3:round=stochastic", "avx512", {10.5F, 12.3F, 25.8F}},
    {"mxfp6e2m3", "scalar", {0.44F, 0.35F, 0.34F}},
    {"mxfp6e2m3", "generic", {0.76F, 0.74F, 0.74F}},
    {"mxfp6e2m3", "sse4", {5.74F, 5.68F, 6.27F}},
    {"mxfp6e2m3", "avx2", {9.83F, 8.37F, 12.2F}},
    {"mxfp6e2m3", "avx512", {14.7F, 10.8F, 21.0F}},
    {"mxfp6e2m3:round=stochastic", "scalar", {0.24F, 0.36F, 0.35F}},
    {"mxfp6e2m3:round=stochastic", "generic", {0.49F, 0.74F, 0.74F}},
    {"mxfp6e2m3:round=stochastic", "sse4", {3.08F, 5.80F, 6.55F}},
    {"mxfp6e2m3:round=stochastic", "avx2", {5.18F, 8.38F, 12.4F}},
    {"mxfp6e2m3:round=stochastic", "avx512", {9.02F, 9.90F, 21.2F}},
    {"mxfp4", "scalar", {0.61F, 0.40F, 0.38F}},
    {"mxfp4", "generic", {0.97F, 1.24F, 1.24F}},
    {"mxfp4", "sse4", {6.47F, 6.52F, 6.72F}},
    {"mxfp4", "avx2", {11.9F, 12.5F, 14.1F}},
    {"mxfp4", "avx512", {18.9F, 16.1F, 68.1F}},
    {"mxfp4:round=stochastic", "scalar", {0.28F, 0.39F, 0.38F}},
    {"mxfp4:round=stochastic", "generic", {0.53F, 1.22F, 1.23F}},
    {"mxfp4:round=stochastic", "sse4", {3.06F, 6.28F, 6.44F}},
    {"mxfp4:round=stochastic", "avx2", {5.52F, 11.1F, 13.5F}},
    {"mxfp4:round=stochastic", "avx512", {10.1F, 14.8F, 54.2F}},
    {"nvfp4", "scalar", {0.47F, 0.40F, 0.38F}},
    {"nvfp4", "generic", {0.88F, 1.10F, 1.02F}},
    {"nvfp4", "sse4", {3.64F, 4.91F, 5.78F}},
    {"nvfp4", "avx2", {4.69F, 7.21F, 10.2F}},
    {"nvfp4", "avx512", {6.69F, 12.8F, 20.9F}},
    {"nvfp4:round=stochastic", "scalar", {0.25F, 0.40F, 0.39F}},
    {"nvfp4:round=stochastic", "generic", {0.51F, 1.11F, 1.04F}},
    {"nvfp4:round=stochastic", "sse4", {2.22F, 4.93F, 5.72F}},
    {"nvfp4:round=stochastic", "avx2", {3.28F, 7.00F, 10.2F}},
    {"nvfp4:round=stochastic", "avx512", {5.51F, 12.8F, 22.2F}},
    {"onebit", "scalar", {0.24F, 1.37F, 1.25F}},
    {"onebit", "generic", {0.23F, 1.36F, 1.26F}},
    {"onebit", "sse4", {0.24F, 1.40F, 1.28F}},
    {"onebit", "avx2", {0.24F, 1.39F, 1.27F}},
    {"onebit", "avx512", {0.24F, 1.37F, 1.25F}},
    {"terngrad", "scalar", {0.27F, 0.22F, 0.22F}},
    {"terngrad", "generic", {0.27F, 0.22F, 0.22F}},
    {"terngrad", "sse4", {0.27F, 0.22F, 0.22F}},
    {"terngrad", "avx2", {0.27F, 0.22F, 0.22F}},
    {"terngrad", "avx512", {0.26F, 0.22F, 0.22F}},
    {"topk", "scalar", {0.32F, 4.45F, 3.40F}},
    {"topk", "generic", {0.31F, 4.33F, 3.44F}},
    {"topk", "sse4", {0.32F, 4.40F, 3.41F}},
    {"topk", "avx2", {0.31F, 4.23F, 3.25F}},
    {"topk", "avx512", {0.32F, 4.50F, 3.46F}},
    // clang-format on
};

// NEON and SVE have not been measured. Where they are found, their vectors have 128 bits.
std::string_view measured_tier(std::string_view tier) {
    if (tier == "neon" || tier == "sve") return "sse4";
    const bool is_known = std::ranges::find(rows, tier, &CodecRateRow::tier) != std::end(rows);
    return is_known ? tier : "scalar";
}

bool has_vector_code(const Codec &codec) {
    return codec.id != CodecId::integer || is_vector_block(codec.bucket);
}

void lower_to(const CodecRate &other, CodecRate &rate) {
    for (const auto operation : {&CodecRate::encode, &CodecRate::decode, &CodecRate::decode_add})
        rate.*operation = std::min(rate.*operation, other.*operation);
}

} // namespace

std::span<const CodecRateRow> codec_rate_rows() { return rows; }

std::vector<std::string_view> rated_codecs() {
    std::vector<std::string_view> names;
    for (const CodecRateRow &row : rows)
        if (names.empty() || names.back() != row.codec) names.push_back(row.codec);
    return names;
}

CodecRates::CodecRates(const CodecRate &rate) : takes_any_block_(1) { rates_.fill(rate); }

CodecRates CodecRates::of_tier(std::string_view tier) {
    CodecRates rates;
    for (const CodecRateRow &row : rows) {
        if (row.tier != measured_tier(tier)) continue;
        if (const auto codec = parse_codec(row.codec)) rates.rates_[index(*codec)] = row.rate;
    }
    return rates;
}

CodecRate CodecRates::of(const Codec &codec) const {
    CodecRate rate = rates_[index(codec)];
    if (takes_any_block_ != 0 || has_vector_code(codec)) return rate;
    static const CodecRates scalar = of_tier("scalar");
    lower_to(scalar.rates_[index(codec)], rate);
    return rate;
}

void CodecRates::slow_down_to(const CodecRates &other) {
    for (size_t i = 0; i < rates_.size(); i++) lower_to(other.rates_[i], rates_[i]);
}

void CodecRates::replace_by(const CodecRates &others) {
    for (size_t i = 0; i < rates_.size(); i++)
        if (!(others.rates_[i] == CodecRate())) rates_[i] = others.rates_[i];
}

} // namespace qccl
