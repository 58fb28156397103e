// Counts sends on the schedules, and weighs them with the size of each chunk's messages.
#include "plan/link_bytes.hpp"

#include "plan/rank_program.hpp"
#include "schedule/place_codec.hpp"

#include <algorithm>

namespace qccl {

LinkClassOf link_class_by_hosts(const RankTopology *places) {
    return [places](uint32_t from, uint32_t to) {
        const bool is_remote =
            places && places->hosts().group_of(from) != places->hosts().group_of(to);
        return is_remote ? LinkClass::tcp : LinkClass::shared_memory;
    };
}

Result<LinkByteCounter::Sends> LinkByteCounter::count_sends(const Algorithm &algorithm,
                                                            const Problem &problem) const {
    Sends sends;
    for (uint32_t rank = 0; rank < problem.ranks; rank++) {
        QCCL_TRY(const Schedule author, emit(algorithm, problem.collective, problem.team(rank)));
        QCCL_TRY(const Schedule placed, place_codec(author));
        sends.chunks = placed.chunks;
        sends.outbox = std::max(sends.outbox, placed.outbox);
        for (const Step &step : placed.steps) {
            if (step.verb != Verb::send) continue;
            const auto of_class = static_cast<size_t>(link_class_(rank, step.peer));
            std::vector<uint64_t> &times = sends.times[of_class][step.has(Step::inner)];
            times.resize(placed.chunks);
            times[step.chunk]++;
        }
    }
    return sends;
}

Result<const LinkByteCounter::Sends *> LinkByteCounter::sends_of(const Algorithm &algorithm,
                                                                 const Problem &problem) {
    std::string key = spec(algorithm);
    key.append(" ").append(name(problem.collective)).append(" ");
    key.append(std::to_string(problem.root));
    if (const auto known = known_.find(key); known != known_.end()) return &known->second;
    QCCL_TRY(Sends sends, count_sends(algorithm, problem));
    return &known_.emplace(std::move(key), std::move(sends)).first->second;
}

Result<LinkBytes> LinkByteCounter::count(const Plan &plan, const Problem &problem,
                                         const ShapeLimits &limits) {
    QCCL_TRY(const Sends *const sends, sends_of(plan.algorithm, problem));
    SimulatedCall call{
        .problem = problem, .algorithm = plan.algorithm, .limits = limits, .speeds = {}};
    QCCL_TRY(const CallGeometry shape,
             CallGeometry::create(call, sends->chunks, sends->outbox, false));
    LinkBytes bytes{};
    for (const bool is_inner : {false, true}) {
        for (uint32_t chunk = 0; chunk < sends->chunks; chunk++) {
            const uint64_t each = shape.all_bytes(shape.length_of(chunk), is_inner);
            for (size_t of_class = 0; of_class < link_classes; of_class++)
                if (const auto &times = sends->times[of_class][is_inner]; !times.empty())
                    bytes[of_class] += times[chunk] * each;
        }
    }
    return bytes;
}

} // namespace qccl
