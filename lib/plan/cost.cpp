// The measured rates of the CPU kernels and how a codec's parameters change them, the speeds that
// stand in where nothing was measured, and the arithmetic of the cost model.
#include "plan/cost.hpp"

#include "base/types.hpp"
#include "codec/chunk.hpp"
#include "coll/emitters.hpp"

#include <algorithm>
#include <cmath>

namespace qccl {

// ---- Codec rates

namespace {

// The output of `qccl-perf codec --rates -b 8M`, the better of two runs: medians for 8 MiB of
// evenly distributed values on one core of a Zen 5 virtual machine. The vector code of onebit,
// terngrad and topk was measured on a Zen 4 one, whose rates of int4 are 0.8 of those here, and the
// stochastic rounding of casts on one that decodes them at 0.7 of the rates here.
constexpr CodecRateRow measured_rates[] = {
    // clang-format off
    {"fp16", "scalar", {0.54F, 0.93F, 0.89F}},
    {"fp16", "generic", {1.09F, 1.57F, 1.07F}},
    {"fp16", "sse4", {11.0F, 11.0F, 10.8F}},
    {"fp16", "avx2", {19.9F, 23.3F, 21.4F}},
    {"fp16", "avx512", {36.5F, 30.7F, 28.2F}},
    {"fp16:round=stochastic", "scalar", {0.37F, 0.89F, 0.81F}},
    {"fp16:round=stochastic", "generic", {0.55F, 1.18F, 0.77F}},
    {"fp16:round=stochastic", "sse4", {3.29F, 8.81F, 9.10F}},
    {"fp16:round=stochastic", "avx2", {5.52F, 17.2F, 19.0F}},
    {"fp16:round=stochastic", "avx512", {8.28F, 18.9F, 21.9F}},
    {"bf16", "scalar", {0.54F, 0.84F, 0.89F}},
    {"bf16", "generic", {1.47F, 4.38F, 1.98F}},
    {"bf16", "sse4", {14.3F, 23.3F, 26.4F}},
    {"bf16", "avx2", {26.6F, 36.7F, 47.4F}},
    {"bf16", "avx512", {50.0F, 36.0F, 54.3F}},
    {"bf16:round=stochastic", "scalar", {0.36F, 0.94F, 0.77F}},
    {"bf16:round=stochastic", "generic", {0.86F, 3.36F, 1.53F}},
    {"bf16:round=stochastic", "sse4", {4.54F, 15.5F, 21.0F}},
    {"bf16:round=stochastic", "avx2", {7.18F, 25.9F, 34.2F}},
    {"bf16:round=stochastic", "avx512", {11.7F, 25.9F, 38.5F}},
    {"fp8e4m3", "scalar", {0.53F, 0.99F, 0.90F}},
    {"fp8e4m3", "generic", {1.10F, 1.92F, 1.21F}},
    {"fp8e4m3", "sse4", {9.96F, 12.8F, 12.8F}},
    {"fp8e4m3", "avx2", {16.9F, 24.6F, 23.5F}},
    {"fp8e4m3", "avx512", {36.2F, 36.5F, 35.5F}},
    {"fp8e4m3:round=stochastic", "scalar", {0.35F, 0.95F, 0.89F}},
    {"fp8e4m3:round=stochastic", "generic", {0.60F, 1.44F, 0.98F}},
    {"fp8e4m3:round=stochastic", "sse4", {3.42F, 10.3F, 10.9F}},
    {"fp8e4m3:round=stochastic", "avx2", {5.58F, 19.4F, 20.5F}},
    {"fp8e4m3:round=stochastic", "avx512", {8.20F, 22.2F, 25.6F}},
    {"fp8e5m2", "scalar", {0.53F, 0.90F, 0.89F}},
    {"fp8e5m2", "generic", {1.10F, 1.60F, 1.06F}},
    {"fp8e5m2", "sse4", {9.97F, 11.4F, 10.7F}},
    {"fp8e5m2", "avx2", {17.3F, 21.0F, 21.7F}},
    {"fp8e5m2", "avx512", {31.2F, 36.0F, 29.5F}},
    {"fp8e5m2:round=stochastic", "scalar", {0.38F, 0.84F, 0.75F}},
    {"fp8e5m2:round=stochastic", "generic", {0.53F, 1.14F, 0.73F}},
    {"fp8e5m2:round=stochastic", "sse4", {3.39F, 8.02F, 8.89F}},
    {"fp8e5m2:round=stochastic", "avx2", {5.39F, 17.2F, 18.4F}},
    {"fp8e5m2:round=stochastic", "avx512", {7.94F, 19.4F, 22.6F}},
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
    {"onebit", "generic", {0.82F, 3.74F, 1.67F}},
    {"onebit", "sse4", {17.7F, 10.4F, 18.5F}},
    {"onebit", "avx2", {27.7F, 13.2F, 38.8F}},
    {"onebit", "avx512", {53.3F, 13.4F, 52.8F}},
    {"terngrad", "scalar", {0.27F, 0.22F, 0.22F}},
    {"terngrad", "generic", {0.83F, 1.21F, 0.83F}},
    {"terngrad", "sse4", {3.82F, 8.24F, 12.4F}},
    {"terngrad", "avx2", {6.94F, 10.9F, 23.9F}},
    {"terngrad", "avx512", {9.71F, 10.7F, 26.5F}},
    {"topk", "scalar", {0.32F, 4.45F, 3.40F}},
    {"topk", "generic", {0.39F, 29.9F, 2.58F}},
    {"topk", "sse4", {4.31F, 20.8F, 21.7F}},
    {"topk", "avx2", {10.7F, 43.5F, 39.0F}},
    {"topk", "avx512", {10.1F, 43.5F, 39.7F}},
    {"dgc", "scalar", {0.32F, 4.45F, 3.40F}},
    {"dgc", "generic", {0.39F, 29.9F, 2.58F}},
    {"dgc", "sse4", {4.31F, 20.8F, 21.7F}},
    {"dgc", "avx2", {10.7F, 43.5F, 39.0F}},
    {"dgc", "avx512", {10.1F, 43.5F, 39.7F}},
    {"norm", "scalar", {0.24F, 1.02F, 0.99F}},
    {"norm", "generic", {0.30F, 6.99F, 5.35F}},
    {"norm", "sse4", {3.35F, 12.3F, 28.1F}},
    {"norm", "avx2", {6.72F, 13.2F, 49.1F}},
    {"norm", "avx512", {8.89F, 12.6F, 48.0F}},
    {"norm:round=nearest", "scalar", {0.52F, 1.02F, 0.98F}},
    {"norm:round=nearest", "generic", {2.31F, 7.06F, 5.35F}},
    {"norm:round=nearest", "sse4", {18.5F, 11.2F, 27.9F}},
    {"norm:round=nearest", "avx2", {32.4F, 13.2F, 46.4F}},
    {"norm:round=nearest", "avx512", {36.0F, 12.4F, 50.2F}},
    {"dummy", "scalar", {50.0F, 20.0F, 3.0F}},
    {"dummy", "generic", {50.0F, 20.0F, 3.0F}},
    {"dummy", "sse4", {50.0F, 20.0F, 20.0F}},
    {"dummy", "avx2", {50.0F, 20.0F, 20.0F}},
    {"dummy", "avx512", {50.0F, 20.0F, 20.0F}},
    {"lossless", "scalar", {1.03F, 1.04F, 0.75F}},
    {"lossless", "generic", {0.93F, 0.97F, 0.70F}},
    {"lossless", "sse4", {0.97F, 2.19F, 2.09F}},
    {"lossless", "avx2", {1.05F, 2.74F, 2.70F}},
    {"lossless", "avx512", {1.78F, 2.82F, 2.65F}},
    // clang-format on
};

// NEON and SVE have not been measured. Where they are found, their vectors have 128 bits.
std::string_view measured_tier(std::string_view tier) {
    if (tier == "neon" || tier == "sve") return "sse4";
    const bool is_known =
        std::ranges::find(measured_rates, tier, &CodecRateRow::tier) != std::end(measured_rates);
    return is_known ? tier : "scalar";
}

bool has_vector_code(const Codec &codec) {
    if (codec.row().kind == CodecKind::onebit) return codec.bucket % group_values == 0;
    return !codec.row().needs_vector_block || is_vector_block(codec.bucket);
}

void lower_to(const CodecRate &other, CodecRate &rate) {
    for (const auto operation : {&CodecRate::encode, &CodecRate::decode, &CodecRate::decode_add})
        rate.*operation = std::min(rate.*operation, other.*operation);
}

} // namespace

std::span<const CodecRateRow> codec_rate_rows() { return measured_rates; }

std::vector<std::string_view> rated_codecs() {
    std::vector<std::string_view> names;
    for (const CodecRateRow &row : measured_rates)
        if (names.empty() || names.back() != row.codec) names.push_back(row.codec);
    return names;
}

CodecRates::CodecRates(const CodecRate &rate) : takes_any_block_(1) { rates_.fill(rate); }

CodecRates CodecRates::of_tier(std::string_view tier) {
    CodecRates rates;
    for (const CodecRateRow &row : measured_rates) {
        if (row.tier != measured_tier(tier)) continue;
        if (const auto codec = parse_codec(row.codec)) rates.rates_[index(*codec)] = row.rate;
    }
    return rates;
}

CodecRate CodecRates::of(const Codec &codec) const {
    CodecRate rate = rates_[index(codec)];
    // A decoder of dither draws as much noise as the encoder, which takes most of its time.
    if (codec.dithers())
        for (const auto operation : {&CodecRate::decode, &CodecRate::decode_add})
            rate.*operation = std::min(rate.*operation, rate.encode);
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

// ---- Cost model

namespace {

// Returns how many symbols packing makes of a value (WIRE.md, "Packed payloads").
double symbols_per_value(const Codec &codec) {
    if (codec.id == CodecId::terngrad) return 0.2;
    switch (codec.bits) {
    case 1:
    case 2:
    case 4: return codec.bits / 8.0;
    case 3: return 0.5;
    default: return 1;
    }
}

} // namespace

CodecRate CostModel::coding_rate(const Codec &codec, bool has_hosts, double copying) const {
    const auto copied = static_cast<float>(copying);
    const CodecRate packing = codec_rates.of(usual_lossless);
    if (codec.id == CodecId::lossless)
        return has_hosts ? packing : CodecRate{copied, copied, copied};
    CodecRate rate = codec_rates.of(codec);
    if (!codec.packs || !has_hosts) return rate;
    // int8 and bf16 take between 0.6 and 0.9 of the time, because codes have no raw bits, or fewer.
    const double share = 0.75 * symbols_per_value(codec);
    const auto slow_down = [share](float &bytes_per_ns, float packing_rate) {
        bytes_per_ns = static_cast<float>(1 / (1 / bytes_per_ns + share / packing_rate));
    };
    slow_down(rate.encode, packing.encode);
    slow_down(rate.decode, packing.decode);
    slow_down(rate.decode_add, packing.decode);
    return rate;
}

double CopySpeeds::at(double bytes) const {
    if (bytes <= points.front().bytes) return points.front().bytes_per_ns;
    for (size_t i = 1; i < points.size(); i++) {
        const SpeedPoint &below = points[i - 1], &above = points[i];
        if (bytes > above.bytes) continue;
        const double part = std::log(bytes / below.bytes) / std::log(above.bytes / below.bytes);
        return below.bytes_per_ns + part * (above.bytes_per_ns - below.bytes_per_ns);
    }
    return points.back().bytes_per_ns;
}

const char *name(RateSource source) {
    switch (source) {
    case RateSource::assumed: return "assumed";
    case RateSource::stated: return "stated";
    case RateSource::measured: return "measured";
    }
    return "?";
}

CostModel cost_model_by(const Settings &settings, double ranks_per_core,
                        const CodecRates &codec_rates) {
    CostModel speeds;
    speeds.remote_rate_source = RateSource::assumed;
    speeds.codec_rates = codec_rates;
    speeds.ranks_per_core = ranks_per_core;
    take_settings(settings, speeds);
    return speeds;
}

void take_settings(const Settings &settings, CostModel &speeds) {
    if (settings.link_latency)
        for (LinkSpeeds *remote : {&speeds.remote.alone, &speeds.remote.shared})
            remote->latency_ns = static_cast<double>(settings.link_latency->count());
    if (settings.link_rate) {
        speeds.remote_bytes_per_ns = static_cast<double>(*settings.link_rate) / 1e9;
        speeds.remote_rank_bytes_per_ns = 0;
        speeds.remote_rate_source = RateSource::stated;
    }
}

CostModel gpu_cost_model_by(const Settings &settings, double ranks_per_gpu, GpuReach reach) {
    // Reading and writing each take half of the memory's speed. Coding moves hardly less.
    const double copying = 1800 / ranks_per_gpu;
    const auto coding = static_cast<float>(copying);
    CostModel speeds = cost_model_by(settings, 1, CodecRates({coding, coding, coding}));
    speeds.local.alone = {.latency_ns = 15000,
                          .message_ns = 1000,
                          .byte_ns = 0.5 / (reach == GpuReach::gpus ? 340.0 : 48.0)};
    speeds.local.shared = speeds.local.alone;
    speeds.eager = speeds.local;
    for (CopySpeeds::SpeedPoint &point : speeds.copy.points) point.bytes_per_ns = copying;
    speeds.narrow_coding = 1;
    // The host's processor packs.
    speeds.codec_rates.set(usual_lossless, CostModel().codec_rates.of(usual_lossless));
    return speeds;
}

uint64_t vector_bytes(const Problem &problem) {
    return vector_count(problem.collective, problem.count, problem.ranks) *
           type_bytes(problem.type);
}

// lib/coll may not include the codecs, so it lists their names itself.
static_assert(std::ranges::equal(inner_codec_words, codec_words),
              "every codec is an inner codec of a hierarchy");

Codec inner_codec(const Algorithm &algorithm, const Codec &codec) {
    const std::string_view word = algorithm.word("inner_codec");
    if (word.empty()) return codec; // the algorithm has no tiers
    if (codec.is_lossless()) return {};
    const auto inner = parse_codec(word);
    return inner ? *inner : Codec();
}

Layout layout_of(const Problem &problem, uint32_t chunks, const Codec &inner) {
    return {problem.collective, problem.count, problem.team(), chunks, grain(problem.codec, inner)};
}

bool fits_eager(const Algorithm &algorithm, const Problem &problem, uint32_t chunks,
                uint64_t chunk_bytes, const EagerSlots &slots) {
    if (!algorithm.fits_exchanges(problem.collective, slots.exchanges)) return false;
    constexpr uint64_t alignment = 64;
    const uint64_t lines = row_of(problem.collective).gathers ? 1 : chunks;
    return lines * round_up(chunk_bytes, alignment) <= slots.bytes;
}

uint64_t usual_message_bytes(const Problem &problem, const Codec &codec, uint64_t count) {
    const size_t bytes = encoded_bytes(codec, problem.type, count);
    if (!codec.packs || !problem.has_hosts()) return bytes;
    const double payload = static_cast<double>(bytes - header_bytes);
    return header_bytes + static_cast<uint64_t>(payload * usual_packed_share(codec, problem.type));
}

namespace {

// Returns how long a rank computes that has its core to itself.
double compute_ns(const Problem &problem, const Codec &inner, const ChunkCounts &counts,
                  double chunk_bytes, const CostModel &speeds) {
    const double copying = speeds.copy.at(static_cast<double>(vector_bytes(problem)));
    const auto coding = [&](double all, double of_inner, float CodecRate::*operation) {
        const bool is_narrow = type_bytes(problem.type) < sizeof(float);
        const auto speed = [&](const Codec &codec) -> double {
            if (codec.is_lossless()) return copying;
            return speeds.coding_rate(codec, problem.has_hosts(), copying).*operation *
                   (is_narrow ? speeds.narrow_coding : 1);
        };
        return (all - of_inner) / speed(problem.codec) + of_inner / speed(inner);
    };
    return chunk_bytes *
           (counts.copies / copying +
            coding(counts.encodes, counts.inner_encodes, &CodecRate::encode) +
            coding(counts.decodes, counts.inner_decodes, &CodecRate::decode) +
            coding(counts.decode_adds, counts.inner_decode_adds, &CodecRate::decode_add));
}

// Returns how many times as long bytes take because streams share a host's link: a ring of four
// hosts takes 53 ms for 4 MiB at 1 Gbit/s, direct 59 ms, and an all-gather 26 and 34 ms. With a
// codec, whose chunks are ready one after the other, direct takes 2 % more. Streams cost the
// processor more, too, because each has a socket of its own to be polled.
double contention(uint32_t streams, bool is_lossless) {
    const double most = is_lossless ? 0.2 : 0.05;
    return streams == 0 ? 1 : 1 + most * (1 - 1.0 / streams);
}

// The size of an encoded chunk, by the codec that it travels with.
struct ChunkBytes {
    double outer = 0, inner = 0;

    // Returns the bytes of `chunks` chunks, of which `inner_chunks` travel with the inner codec.
    double of(double chunks, double inner_chunks) const {
        return (chunks - inner_chunks) * outer + inner_chunks * inner;
    }
};

// Returns how long a rank's processor handles messages.
double messages_ns(const ChunkCounts &counts, uint32_t remote_peers, double instances,
                   const ChunkBytes &bytes, const LinkSpeeds &local, const LinkSpeeds &remote) {
    const double remote_messages = counts.remote_sends + counts.remote_recvs,
                 local_messages = counts.sends + counts.recvs - remote_messages;
    const double remote_bytes =
        bytes.of(remote_messages, counts.remote_inner_sends + counts.remote_inner_recvs);
    const auto message_bytes =
        static_cast<uint64_t>(std::max(bytes.outer, bytes.inner) / instances);
    const double network_messages =
        std::max(counts.remote_series,
                 remote_messages / static_cast<double>(messages_per_batch(message_bytes)));
    return local_messages * (instances * local.message_ns + bytes.outer * local.byte_ns) +
           network_messages * instances * remote.message_ns * contention(remote_peers, true) +
           remote_bytes * remote.byte_ns;
}

// Returns the share of a rank's waiting that counts if calls follow each other. The root of a
// broadcast waits for no rank. A rank of a reduce-scatter or all-gather begins the next call before
// the last rank has finished this one.
double waiting_share(Collective collective) {
    if (!row_of(collective).needs_all_ranks) return 0.125;
    return has_part_per_rank(collective) ? 0.25 : 1;
}

// Computes the parts of a call's time, each from the parts before it.
class Estimate {
public:
    Estimate(const Algorithm &algorithm, const Problem &problem, const StepCounts &step_counts,
             const Geometry &geometry, const CostModel &speeds)
        : algorithm_(algorithm), problem_(problem), counts_(step_counts), geometry_(geometry),
          speeds_(speeds), inner_(inner_codec(algorithm, problem.codec)),
          count_(layout_of(problem, step_counts.chunks, inner_).largest()),
          outer_bytes_(encoded_chunk(problem.codec)), inner_bytes_(encoded_chunk(inner_)),
          shares_cores_(speeds.shares_cores()), sharers_(std::max(1.0, speeds.ranks_per_core)),
          waiting_(waiting_share(problem.collective)),
          // Ranks that share a core wait for the work of all of them, other ranks for the busiest
          // one. The root of a broadcast waits for no rank.
          is_work_shared_(shares_cores_ && row_of(problem.collective).needs_all_ranks),
          remote_(shares_cores_ ? speeds.remote.shared : speeds.remote.alone),
          local_(local_speeds()),
          local_rounds_(step_counts.rounds -
                        std::min<double>(step_counts.rounds, step_counts.remote_rounds)),
          host_rate_(speeds.remote_bytes_per_ns), rank_rate_(speeds.remote_rank_bytes_per_ns) {}

    Cost cost() const {
        Cost c;
        count(c);
        c.time_ns = add_parts(c);
        return c;
    }

    // Returns the time that the call takes if the rates of hosts and racks are `times` as high.
    double time_ns(Cost c, double times) const {
        Estimate other = *this;
        other.host_rate_ *= times;
        other.rank_rate_ *= times;
        other.rate_factor_ *= times;
        return other.add_parts(c);
    }

private:
    uint64_t encoded_chunk(const Codec &codec) const {
        const uint64_t full = geometry_.instances - 1;
        return full * usual_message_bytes(problem_, codec, geometry_.segment) +
               usual_message_bytes(problem_, codec, count_ - full * geometry_.segment);
    }

    LinkSpeeds local_speeds() const {
        const EagerSlots slots{speeds_.eager_bytes, speeds_.eager_exchanges};
        const CostModel::LinkCosts &link =
            fits_eager(algorithm_, problem_, counts_.chunks, outer_bytes_, slots) ? speeds_.eager
                                                                                  : speeds_.local;
        LinkSpeeds local = shares_cores_ ? link.shared : link.alone;
        // Ranks that wait poll the network in between, and hold up the ranks on the same core.
        constexpr double held_up = 0.4;
        if (shares_cores_ && problem_.has_hosts())
            local.latency_ns = std::max(local.latency_ns, held_up * remote_.latency_ns);
        if (counts_.local_hop_ns > 0) local.byte_ns = 0; // the links' own times count instead
        return local;
    }

    double instances() const { return static_cast<double>(geometry_.instances); }
    ChunkBytes bytes() const {
        return {static_cast<double>(outer_bytes_), static_cast<double>(inner_bytes_)};
    }
    double rank_rate() const { return rank_rate_ > 0 ? rank_rate_ : host_rate_; }
    // A burst passes part of the bytes at once, so a small call takes less than the link's rate
    // says.
    double line_ns(double bytes) const {
        const double share =
            speeds_.remote_burst_bytes > bytes ? bytes / speeds_.remote_burst_bytes : 1;
        return share * bytes / host_rate_;
    }

    double local_line_ns() const {
        return counts_.local_line_ns * bytes().outer + counts_.inner_local_line_ns * bytes().inner;
    }
    double rack_line_ns() const { return counts_.rack_line_ns * bytes().outer / rate_factor_; }

    void count(Cost &c) const {
        c.rounds = counts_.rounds;
        c.noise = problem_.codec.loses() ? counts_.noise : NoiseMoments();
        c.inner_noise = inner_.loses() ? counts_.inner_noise : NoiseMoments();
        c.summands = reduces(problem_.collective) ? problem_.ranks : 1;
        c.wire_bytes =
            static_cast<uint64_t>(bytes().of(counts_.busiest.sends, counts_.busiest.inner_sends));
        c.host_bytes =
            static_cast<uint64_t>(bytes().of(counts_.host_sends, counts_.host_inner_sends));
        c.remote_peers = counts_.remote_peers;
    }

    // Fills in the parts of the cost, and returns the time that they add up to.
    double add_parts(Cost &c) const {
        c.compute_ns = work_ns([&](const ChunkCounts &counts) { return computing_ns(counts); });
        c.messages_ns = work_ns([&](const ChunkCounts &counts) {
            return messages_ns(counts, counts_.remote_peers, instances(), bytes(), local_, remote_);
        });
        c.wire_ns = line_ns(static_cast<double>(c.host_bytes));
        if (rank_rate_ > 0)
            c.wire_ns = std::max(c.wire_ns, bytes().of(counts_.busiest.remote_sends,
                                                       counts_.busiest.remote_inner_sends) /
                                                rank_rate());
        c.wire_ns *= contention(counts_.remote_peers, problem_.codec.is_lossless());
        const double wire_in_rack_ns = std::max(c.wire_ns, local_line_ns());
        c.rack_ns = rack_line_ns();
        c.wire_ns = std::max(wire_in_rack_ns, c.rack_ns);
        c.latency_ns =
            sharers_ * waiting_ *
            (local_rounds_ * local_.latency_ns + counts_.remote_rounds * remote_.latency_ns);
        return std::max(pipeline_ns(c, wire_in_rack_ns), lanes_ns());
    }

    double computing_ns(const ChunkCounts &counts) const {
        const auto chunk_bytes = static_cast<double>(count_ * type_bytes(problem_.type));
        const double oversubscription_factor =
            shares_cores_ && problem_.has_hosts() ? speeds_.remote_oversubscription : 1;
        return oversubscription_factor * compute_ns(problem_, inner_, counts, chunk_bytes, speeds_);
    }

    // Returns the work of all ranks on one core, and at least that of the busiest rank.
    template <class Ns> double work_ns(Ns ns) const {
        const double busiest = ns(counts_.busiest);
        return is_work_shared_ ? std::max(sharers_ * ns(counts_.mean), busiest)
                               : sharers_ * busiest;
    }

    // A pipeline of two stages, the processor's work and the links', over S equal segments: the
    // longer stage runs all the time, and the shorter one is hidden except for one segment's share.
    // Within a message the network carries the first bytes while the processor still hands over the
    // others. `wire_in_rack_ns`: c.wire_ns without the links between racks.
    double pipeline_ns(const Cost &c, double wire_in_rack_ns) const {
        constexpr double network_piece = 128 << 10;
        const double busy = c.compute_ns + c.messages_ns;
        const double pieces = std::max(instances(), bytes().outer / network_piece);
        const auto work = [&](double wire) {
            return std::max(busy, wire) + std::min(busy, wire) / pieces;
        };
        // Along a chain a rank is idle until the first segment has reached it. The segment takes
        // its share of the work at each rank that it passes, nearly all of them within a rack. A
        // shared core is never idle.
        const uint32_t idle = counts_.turns == 0 ? 0 : c.rounds - std::min(c.rounds, counts_.turns);
        return c.latency_ns + work(c.wire_ns) +
               waiting_ * idle * (is_work_shared_ ? wire_in_rack_ns : work(wire_in_rack_ns)) /
                   instances();
    }

    // As many segments as there are lanes are under way at a time, each through all rounds. A rank
    // computes on a segment in as many turns as it waits for messages. A chain of ranks has more
    // turns than one rank.
    double lanes_ns() const {
        if (geometry_.instances <= geometry_.lanes) return 0;
        const double chains = counts_.rounds / std::max<double>(1, counts_.turns),
                     computing = chains * computing_ns(counts_.busiest) / instances();
        const double segment_bytes = bytes().outer / instances();
        const auto hop = [&](const LinkSpeeds &link) {
            return link.latency_ns + 2 * (link.message_ns + segment_bytes * link.byte_ns);
        };
        const double chain = local_rounds_ * (hop(local_) + segment_bytes * counts_.local_hop_ns) +
                             counts_.remote_rounds * (hop(remote_) + segment_bytes / rank_rate());
        return (chain + computing) * instances() / geometry_.lanes;
    }

    const Algorithm &algorithm_;
    const Problem &problem_;
    const StepCounts &counts_;
    const Geometry &geometry_;
    const CostModel &speeds_;
    const Codec inner_;
    const uint64_t count_; // values of a chunk
    const uint64_t outer_bytes_, inner_bytes_;
    const bool shares_cores_;
    const double sharers_, waiting_;
    const bool is_work_shared_;
    const LinkSpeeds remote_, local_;
    const double local_rounds_;
    double host_rate_, rank_rate_; // bytes a nanosecond; rank_rate_ 0: the host's rate
    double rate_factor_ = 1;       // by which racks' links are assumed to be faster
};

} // namespace

Cost cost(const Algorithm &algorithm, const Problem &problem, const StepCounts &step_counts,
          const Geometry &geometry, const CostModel &speeds) {
    const Estimate estimate(algorithm, problem, step_counts, geometry, speeds);
    Cost cost = estimate.cost();
    cost.slow_network_ns = cost.fast_network_ns = cost.time_ns;
    if (!is_rate_in_doubt(problem, speeds)) return cost;
    cost.slow_network_ns = estimate.time_ns(cost, 1 / rate_doubt);
    cost.fast_network_ns = estimate.time_ns(cost, rate_doubt);
    return cost;
}

bool is_rate_in_doubt(const Problem &problem, const CostModel &speeds) {
    return problem.has_hosts() && speeds.remote_rate_source != RateSource::measured;
}

} // namespace qccl
