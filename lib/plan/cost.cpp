// How a codec's parameters change the measured rates of the CPU kernels, the speeds that
// stand in where nothing was measured, and the arithmetic of the cost model.
#include "plan/cost.hpp"

#include "base/types.hpp"
#include "codec/chunk.hpp"
#include "codec/codec_names.hpp"
#include "codec/error_model.hpp"
#include "coll/emitters.hpp"
#include "plan/measured_rates.hpp"

#include <algorithm>
#include <cmath>

namespace qccl {

// ---- Codec rates

namespace {

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

// A rotation takes about as long as encoding minmax: both pass over the values twice, in registers.
void slow_down_by_rotation(const CodecRate &minmax, CodecRate &rate) {
    for (const auto operation : {&CodecRate::encode, &CodecRate::decode, &CodecRate::decode_add})
        if (rate.*operation > 0 && minmax.encode > 0)
            rate.*operation = 1 / (1 / rate.*operation + 1 / minmax.encode);
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
    if (takes_any_block_ != 0) return rate;
    if (codec.rotation != 0) slow_down_by_rotation(rates_[index(usual_codec("minmax"))], rate);
    if (has_vector_code(codec)) return rate;
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
    // The measured rates of these two are those with packing.
    const bool has_grid = codec.has_grid(),
               always_packs = has_grid || codec.id == CodecId::lossless;
    if (always_packs && !has_hosts) return {copied, copied, copied};
    if (codec.id == CodecId::lossless) return packing;
    CodecRate rate = codec_rates.of(codec);
    if (!has_hosts || !(has_grid ? codec.codes_entropy : codec.packs)) return rate;
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
    // The algorithm has no tiers, or integers are summed, which are exact on every tier.
    if (word.empty() || codec.shares_scales()) return codec;
    if (codec.is_lossless()) return {};
    const auto inner = parse_codec(word);
    return inner ? *inner : Codec();
}

Layout layout_of(const Problem &problem, uint32_t chunks, const Codec &inner) {
    return {problem.collective, problem.count, problem.team(), chunks, grain(problem.codec, inner)};
}

bool may_use_eager(const Algorithm &algorithm, const Problem &problem, uint32_t exchanges) {
    if (problem.has_hosts() && !row_of(problem.collective).needs_all_ranks) return false;
    return algorithm.fits_exchanges(problem.collective, problem.ranks, exchanges);
}

bool fits_eager(const Algorithm &algorithm, const Problem &problem, uint32_t chunks,
                uint64_t chunk_bytes, const EagerSlots &slots) {
    if (!may_use_eager(algorithm, problem, slots.exchanges)) return false;
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
