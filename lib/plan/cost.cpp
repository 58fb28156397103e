#include "plan/cost.hpp"

#include "codec/chunk.hpp"
#include "schedule/place_codec.hpp"

#include <algorithm>

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

Result<Tally> tally_of(const Algorithm &algorithm, const Problem &problem, const Team &team) {
    const bool is_lossless = problem.codec.is_lossless();
    QCCL_TRY(const Schedule author, emit(algorithm, problem.collective, team));
    QCCL_TRY(const Schedule placed, place_codec(author));
    Tally t{.chunks = placed.chunks, .outbox = placed.outbox, .turns = count_turns(author)};
    for (const Step &step : placed.steps) switch (step.verb) {
        case Verb::send: t.sends++; break;
        case Verb::recv: t.recvs++; break;
        // What stays and travels as it is, is read where it lies.
        case Verb::encode: t.encodes += !(is_lossless && step.has(Step::stays)); break;
        case Verb::decode:
        case Verb::decode_add: t.decodes++; break;
        case Verb::copy:
        case Verb::reduce: t.copies += step.sources; break;
        }
    return t;
}

} // namespace

uint64_t vector_bytes(const Problem &problem) {
    return vector_count(problem.collective, problem.count, problem.ranks) *
           type_bytes(problem.type);
}

// Ranks differ in a broadcast (the root sends, and ranks after it pass on), in trees, and where a
// team cannot be halved evenly (the last one has the most to do).
Result<Tally> tally(const Algorithm &algorithm, const Problem &problem) {
    Team team{.size = problem.ranks, .rank = problem.root, .root = problem.root};
    QCCL_TRY(Tally busiest, tally_of(algorithm, problem, team));
    for (const uint32_t rank : {team.after(1), team.after(2), problem.ranks - 1}) {
        team.rank = rank;
        QCCL_TRY(const Tally other, tally_of(algorithm, problem, team));
        busiest.turns = std::max(busiest.turns, other.turns);
        for (const auto field :
             {&Tally::sends, &Tally::recvs, &Tally::encodes, &Tally::decodes, &Tally::copies})
            busiest.*field = std::max(busiest.*field, other.*field);
    }
    return busiest;
}

Layout layout_of(const Problem &problem, uint32_t chunks) {
    const Team team{.size = problem.ranks, .rank = 0, .root = problem.root};
    return {problem.collective, problem.count, team, chunks, grain(problem.codec)};
}

Cost cost(const Algorithm &algorithm, const Problem &problem, const Tally &tally,
          const Geometry &geometry, const Speeds &speeds) {
    const uint64_t count = layout_of(problem, tally.chunks).largest();
    const auto chunk_bytes = static_cast<double>(count * type_bytes(problem.type));
    const auto instances = static_cast<double>(geometry.instances);
    const bool is_lossless = problem.codec.is_lossless();
    const auto encoded = [&](uint64_t elements) {
        return encoded_bytes(problem.codec, problem.type, elements);
    };
    const uint64_t full = geometry.instances - 1;
    const uint64_t encoded_chunk =
        full * encoded(geometry.segment) + encoded(count - full * geometry.segment);

    const auto time = [&](uint64_t chunks, double bytes_per_ns) {
        return static_cast<double>(chunks) * chunk_bytes / bytes_per_ns;
    };
    const double sharers = std::max(1.0, speeds.ranks_per_core);
    const double round_ns = sharers > 1 ? speeds.turn_ns : speeds.latency_ns;
    Cost c;
    c.rounds = algorithm.rounds(problem.collective, {.size = problem.ranks});
    c.noise = is_lossless ? 0 : algorithm.noise(problem.collective, {.size = problem.ranks});
    c.wire_bytes = tally.sends * encoded_chunk;
    c.compute_ns =
        sharers *
        (time(tally.copies, speeds.copy_bytes_per_ns) +
         time(tally.encodes, is_lossless ? speeds.copy_bytes_per_ns : speeds.encode_bytes_per_ns) +
         time(tally.decodes, is_lossless ? speeds.copy_bytes_per_ns : speeds.decode_bytes_per_ns));
    c.wire_ns = static_cast<double>(std::max(tally.sends, tally.recvs) * encoded_chunk) /
                speeds.wire_bytes_per_ns;
    c.latency_ns = sharers * (c.rounds * round_ns + static_cast<double>(tally.sends + tally.recvs) *
                                                        instances * speeds.message_ns);

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
