// The simulator's figures, and how the planner's figures change them.
#include "plan/simulator_speeds.hpp"

#include <algorithm>
#include <cmath>

namespace qccl {

namespace {

// Figures of `perf/plan_table.py` on two processors of a Zen 5 server, over shared memory and over
// TCP between network namespaces.
constexpr CostModel::Link near_links{{.latency_ns = 530, .message_ns = 60, .byte_ns = 0.001},
                                     {.latency_ns = 1270, .message_ns = 410, .byte_ns = 0.001}};
constexpr CostModel::Link eager_slots{{.latency_ns = 0, .message_ns = 0, .byte_ns = 0.001},
                                      {.latency_ns = 2200, .message_ns = 160, .byte_ns = 0.001}};
constexpr CostModel::Link far_links{{.latency_ns = 2650, .message_ns = 6400, .byte_ns = 0.38},
                                    {.latency_ns = 4300, .message_ns = 10000, .byte_ns = 0.6}};
// UCX makes larger messages wait until the receiver has asked for them. Where ranks share cores,
// the other figures include that.
constexpr uint64_t network_eager_bytes = 8 << 10;
constexpr double rendezvous_ns = 7500;
// A sender hands its bytes to the kernel, which carries them all the way into the receiver's
// buffers.
constexpr double sender_share = 0.95;
// Processors of a virtual machine are threads of cores. Two threads of a core do little more than
// one.
constexpr double busy_core = 0.6;

// The speed of each access to memory, by the bytes of the vectors of two ranks.
constexpr CopySpeeds memory_speeds{{{{1 << 20, 380}, {4 << 20, 300}, {8 << 20, 48}}}};
constexpr double cache_speed = 150;   // passing over tiles in the nearest cache
constexpr double adding_share = 0.57; // of cache_speed, where values are added up
// The memory speeds of reading and writing that the measured rates of codecs include, which come
// from vectors larger than the caches.
constexpr ComputeSpeeds::Coding measured_memory{.encode = 76, .decode = 18.8, .decode_add = 380};
// How many times as long computing takes: if ranks share a core and empty its caches, and if ranks
// that wait poll.
constexpr double crowded = 1.2, polled = 1.6;
// Time of a call, and what naming a codec adds.
constexpr double call_ns = 220, shared_call_ns = 910, codec_ns = 330;
constexpr double lossless_chunk_ns = 7.5, coded_chunk_ns = 28;
// A message's bytes cost less, the more of them caches and sockets hold.
constexpr double least_byte_share = 0.15;
constexpr double cached_vector = 256 << 10, uncached_vector = 1 << 20;

double scaled(double own, double planner, double planner_default) {
    return planner_default > 0 ? own * planner / planner_default : own;
}

// The latency that a user names is the link's, not the software's, so the difference is added.
double shifted(double own, double planner, double planner_default) {
    constexpr double least_share = 0.1;
    return std::max(least_share * own, own + planner - planner_default);
}

LinkSpeeds scaled(const LinkSpeeds &own, const LinkSpeeds &planner, const LinkSpeeds &usual) {
    return {shifted(own.latency_ns, planner.latency_ns, usual.latency_ns),
            scaled(own.message_ns, planner.message_ns, usual.message_ns),
            scaled(own.byte_ns, planner.byte_ns, usual.byte_ns)};
}

CostModel::Link scaled(const CostModel::Link &own, const CostModel::Link &planner,
                       const CostModel::Link &usual) {
    return {scaled(own.alone, planner.alone, usual.alone),
            scaled(own.shared, planner.shared, usual.shared)};
}

// The share follows the logarithm of the size, as in CopySpeeds.
double share_between(double bytes, double below, double above) {
    return std::clamp(std::log(bytes / below) / std::log(above / below), 0.0, 1.0);
}

double memory_speed(const CostModel &speeds, const Problem &problem, const SimulatedHost &host) {
    const auto vector = static_cast<double>(vector_bytes(problem));
    return memory_speeds.at(vector * std::max(2.0, host.ranks) / 2) * speeds.copy.at(vector) /
           CopySpeeds().at(vector);
}

double crowding_factor(const CostModel &speeds, const Problem &problem) {
    const bool shares_cores = speeds.shares_cores();
    if (problem.has_hosts()) return polled * (shares_cores ? speeds.far_crowding : 1.4) / 1.4;
    return shares_cores ? crowded : 1;
}

// Returns the rate without the time that memory takes.
double in_cache(double rate, double memory) {
    constexpr double least_share = 0.1;
    return 1 / std::max(1 / rate - 1 / memory, least_share / rate);
}

ComputeSpeeds gpu_speeds(const CostModel &speeds, const Problem &problem, const Codec &inner) {
    const double copying = speeds.copy.at(static_cast<double>(vector_bytes(problem)));
    const auto coding = [&](const Codec &codec) -> ComputeSpeeds::Coding {
        if (codec.is_lossless()) return {copying, copying, copying};
        const CodecRate &rate = speeds.codec_rates.of(codec);
        return {rate.encode, rate.decode, rate.decode_add};
    };
    return {.copy = copying, .outer = coding(problem.codec), .inner = coding(inner)};
}

} // namespace

TieredRates tiered_rates(const CostModel &speeds, const SimulatedHost &host) {
    TieredRates rates{.near = speeds.near,
                      .eager = speeds.eager,
                      .far = speeds.far,
                      .line_rate = speeds.far_bytes_per_ns,
                      .line_burst_bytes = speeds.far_burst_bytes};
    if (host.has_gpus) return rates;
    const CostModel usual;
    rates.near = scaled(near_links, speeds.near, usual.near);
    rates.eager = scaled(eager_slots, speeds.eager, usual.eager);
    rates.far = scaled(far_links, speeds.far, usual.far);
    rates.far_send_share = sender_share;
    rates.far_eager_bytes = network_eager_bytes;
    rates.rendezvous_ns =
        scaled(rendezvous_ns, speeds.far.alone.latency_ns, usual.far.alone.latency_ns);
    rates.busy_core = busy_core;
    return rates;
}

ComputeSpeeds compute_speeds(const CostModel &speeds, const Problem &problem, const Codec &inner,
                             const SimulatedHost &host) {
    if (host.has_gpus) return gpu_speeds(speeds, problem, inner);
    const double slower = crowding_factor(speeds, problem);
    const double narrow = type_bytes(problem.type) < sizeof(float) ? speeds.narrow_coding : 1;
    const auto coding = [&](const Codec &codec) -> ComputeSpeeds::Coding {
        if (codec.is_lossless())
            return {cache_speed / slower, cache_speed / slower,
                    cache_speed * adding_share / slower};
        const CodecRate &rate = speeds.codec_rates.of(codec);
        const double factor = narrow / slower;
        return {factor * in_cache(rate.encode, measured_memory.encode),
                factor * in_cache(rate.decode, measured_memory.decode),
                factor * in_cache(rate.decode_add, measured_memory.decode_add)};
    };
    const bool is_lossless = problem.codec.is_lossless();
    const bool shares_cores = speeds.shares_cores();
    const double uncached =
        share_between(static_cast<double>(vector_bytes(problem)), cached_vector, uncached_vector);
    return {.copy = cache_speed / slower,
            .outer = coding(problem.codec),
            .inner = coding(inner),
            .memory = memory_speed(speeds, problem, host) / slower,
            .network_byte_share = least_byte_share + (1 - least_byte_share) * uncached,
            .call_ns = (shares_cores ? shared_call_ns : call_ns) + (is_lossless ? 0 : codec_ns),
            .chunk_ns = is_lossless ? lossless_chunk_ns : coded_chunk_ns};
}

} // namespace qccl
