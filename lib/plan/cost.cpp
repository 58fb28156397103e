#include "plan/cost.hpp"

#include "codec/chunk.hpp"
#include "schedule/place_codec.hpp"

#include <algorithm>
#include <set>

namespace qccl {

namespace {

// How often messages are waited for that depend on what the rank did before: receives in a row
// count once. The author's order shows it, before decoding comes between.
uint32_t count_turns(const Schedule &author) {
    uint32_t turns = 0;
    bool receives = false;
    for (const Step &step : author.steps) {
        turns += step.verb == Verb::recv && !receives;
        receives = step.verb == Verb::recv;
    }
    return turns;
}

Result<Tally> tally_of(const Algorithm &algorithm, const Problem &problem, uint32_t rank) {
    const bool is_lossless = problem.codec.is_lossless();
    QCCL_TRY(const Schedule author, emit(algorithm, problem.collective, problem.team(rank)));
    QCCL_TRY(const Schedule placed, place_codec(author));
    const auto is_far = [&](uint32_t peer) {
        return problem.has_hosts() &&
               problem.places->hosts().group_of(peer) != problem.places->hosts().group_of(rank);
    };
    std::set<uint32_t> far_peers;
    Tally t{.chunks = placed.chunks, .outbox = placed.outbox, .turns = count_turns(author)};
    for (const Step &step : placed.steps) {
        const bool is_inner = step.has(Step::inner);
        switch (step.verb) {
        case Verb::send:
            t.sends++;
            t.inner_sends += is_inner;
            t.far_sends += is_far(step.peer);
            if (is_far(step.peer)) far_peers.insert(step.peer);
            break;
        case Verb::recv: t.recvs++; break;
        case Verb::encode:
            // What stays and travels as it is, is read where it lies.
            t.encodes += !(is_lossless && step.has(Step::stays));
            t.inner_encodes += is_inner;
            break;
        case Verb::decode:
            t.decodes++;
            t.inner_decodes += is_inner;
            break;
        case Verb::decode_add:
            t.decode_adds++;
            t.inner_decode_adds += is_inner;
            break;
        case Verb::copy:
        case Verb::reduce: t.copies += step.sources; break;
        }
    }
    t.far_peers = far_peers.size();
    return t;
}

void take_greater(Tally &most, const Tally &other) {
    most.turns = std::max(most.turns, other.turns);
    for (const auto field :
         {&Tally::sends, &Tally::recvs, &Tally::encodes, &Tally::decodes, &Tally::decode_adds,
          &Tally::copies, &Tally::inner_sends, &Tally::inner_encodes, &Tally::inner_decodes,
          &Tally::inner_decode_adds, &Tally::far_sends, &Tally::host_sends, &Tally::far_peers})
        most.*field = std::max(most.*field, other.*field);
}

// All that leaves the host of the rank.
Done add_host(const Algorithm &algorithm, const Problem &problem, uint32_t rank, Tally &busiest) {
    const Partition &hosts = problem.places->hosts();
    Tally host;
    for (const uint32_t each : hosts.ranks(hosts.group_of(rank))) {
        QCCL_TRY(const Tally one, tally_of(algorithm, problem, each));
        host.host_sends += one.far_sends;
        take_greater(busiest, one);
    }
    take_greater(busiest, host);
    return {};
}

// Of a rank that has its core for itself.
double compute_ns(const Problem &problem, const Codec &inner, const Tally &tally,
                  double chunk_bytes, const Speeds &speeds) {
    const auto time = [&](uint64_t chunks, double bytes_per_ns) {
        return static_cast<double>(chunks) * chunk_bytes / bytes_per_ns;
    };
    const auto coding = [&](uint64_t all, uint64_t of_inner, float CodecRate::*operation) {
        const bool is_narrow = type_bytes(problem.type) < sizeof(float);
        const auto speed = [&](const Codec &codec) -> double {
            if (codec.is_lossless()) return speeds.copy_bytes_per_ns;
            return speeds.codec_rates.of(codec).*operation * (is_narrow ? speeds.narrow_coding : 1);
        };
        return time(all - of_inner, speed(problem.codec)) + time(of_inner, speed(inner));
    };
    return time(tally.copies, speeds.copy_bytes_per_ns) +
           coding(tally.encodes, tally.inner_encodes, &CodecRate::encode) +
           coding(tally.decodes, tally.inner_decodes, &CodecRate::decode) +
           coding(tally.decode_adds, tally.inner_decode_adds, &CodecRate::decode_add);
}

} // namespace

Speeds speeds_by(const Settings &settings, double ranks_per_core, const CodecRates &codec_rates) {
    Speeds speeds{.codec_rates = codec_rates, .ranks_per_core = ranks_per_core};
    if (settings.link_latency)
        speeds.far_latency_ns = static_cast<double>(settings.link_latency->count());
    if (settings.link_rate)
        speeds.far_bytes_per_ns = static_cast<double>(*settings.link_rate) / 1e9;
    return speeds;
}

Speeds gpu_speeds_by(const Settings &settings, double ranks_per_gpu, GpuReach reach) {
    // Reading and writing each at half of the memory's speed. Coding moves hardly less.
    const double copying = 1800 / ranks_per_gpu;
    const auto coding = static_cast<float>(copying);
    Speeds speeds = speeds_by(settings, 1, CodecRates({coding, coding, coding}));
    speeds.latency_ns = 15000;
    speeds.message_ns = 1000;
    speeds.copy_bytes_per_ns = copying;
    speeds.narrow_coding = 1;
    speeds.wire_bytes_per_ns = reach == GpuReach::gpus ? 340 : 48;
    return speeds;
}

uint64_t vector_bytes(const Problem &problem) {
    return vector_count(problem.collective, problem.count, problem.ranks) *
           type_bytes(problem.type);
}

Codec inner_codec(const Algorithm &algorithm, const Codec &codec) {
    const std::string_view word = algorithm.word("inner_codec");
    if (word.empty()) return codec; // there are no tiers
    if (codec.is_lossless()) return {};
    const auto inner = parse_codec(word);
    return inner ? *inner : Codec();
}

// Ranks differ in a broadcast (the root sends, and ranks after it pass on), in trees, and where a
// team cannot be halved evenly (the last one has the most to do). Hosts differ in their number of
// ranks: those of these ranks are looked at.
Result<Tally> tally(const Algorithm &algorithm, const Problem &problem) {
    const Team team = problem.team(problem.root);
    QCCL_TRY(Tally busiest, tally_of(algorithm, problem, team.rank));
    for (const uint32_t rank : {team.rank, team.after(1), team.after(2), problem.ranks - 1}) {
        QCCL_TRY(const Tally other, tally_of(algorithm, problem, rank));
        take_greater(busiest, other);
        if (problem.has_hosts()) QCCL_TRY(add_host(algorithm, problem, rank, busiest));
    }
    return busiest;
}

Layout layout_of(const Problem &problem, uint32_t chunks, const Codec &inner) {
    return {problem.collective, problem.count, problem.team(), chunks, grain(problem.codec, inner)};
}

Cost cost(const Algorithm &algorithm, const Problem &problem, const Tally &tally,
          const Geometry &geometry, const Speeds &speeds) {
    const Codec inner = inner_codec(algorithm, problem.codec);
    const uint64_t count = layout_of(problem, tally.chunks, inner).largest();
    const auto chunk_bytes = static_cast<double>(count * type_bytes(problem.type));
    const auto instances = static_cast<double>(geometry.instances);
    const auto encoded_chunk = [&](const Codec &codec) {
        const uint64_t full = geometry.instances - 1;
        return full * encoded_bytes(codec, problem.type, geometry.segment) +
               encoded_bytes(codec, problem.type, count - full * geometry.segment);
    };
    const uint64_t outer_bytes = encoded_chunk(problem.codec), inner_bytes = encoded_chunk(inner);

    const Team team = problem.team();
    const double sharers = std::max(1.0, speeds.ranks_per_core);
    const double round_ns = sharers > 1 ? speeds.turn_ns : speeds.latency_ns;
    Cost c;
    c.rounds = algorithm.rounds(problem.collective, team);
    c.noise = problem.codec.is_lossless() ? 0 : algorithm.noise(problem.collective, team);
    c.inner_noise = inner.is_lossless() ? 0 : algorithm.inner_noise(problem.collective, team);
    c.summands = reduces(problem.collective) ? problem.ranks : 1;
    c.wire_bytes =
        (tally.sends - tally.inner_sends) * outer_bytes + tally.inner_sends * inner_bytes;
    c.host_bytes = tally.host_sends * outer_bytes;
    c.far_peers = tally.far_peers;
    c.compute_ns = sharers * compute_ns(problem, inner, tally, chunk_bytes, speeds);
    if (sharers > 1 && problem.has_hosts()) c.compute_ns *= speeds.far_crowding;
    const uint64_t received =
        tally.recvs > tally.sends ? (tally.recvs - tally.sends) * outer_bytes : 0;
    c.wire_ns = static_cast<double>(c.wire_bytes + received) / speeds.wire_bytes_per_ns +
                static_cast<double>(c.host_bytes) / speeds.far_bytes_per_ns;
    c.latency_ns = sharers * (c.rounds * round_ns + static_cast<double>(tally.sends + tally.recvs) *
                                                        instances * speeds.message_ns);
    if (problem.has_hosts())
        c.latency_ns += algorithm.outer_rounds(problem.collective, team) * speeds.far_latency_ns +
                        static_cast<double>(tally.far_sends) * instances * speeds.far_message_ns;

    // A pipeline of two stages, computing and moving, over S equal segments: the longer stage runs
    // all the time, and the shorter one is hidden but for one segment's share of it.
    const double work =
        std::max(c.compute_ns, c.wire_ns) + std::min(c.compute_ns, c.wire_ns) / instances;
    // Along a chain a rank has nothing to do until the first segment has come down to it, which
    // takes a segment's share of the work for each rank that it passes.
    const uint32_t idle = tally.turns == 0 ? 0 : c.rounds - std::min(c.rounds, tally.turns);
    c.time_ns = c.latency_ns + work + idle * work / instances;
    return c;
}

} // namespace qccl
