// A phase is the part of an algorithm that runs within one group of ranks; schedules are composed
// of phases. Used by the algorithms and by hierarchy. Pure; any thread may call.
#pragma once

#include "coll/group.hpp"
#include "schedule/sum_order.hpp"

namespace qccl {

// The slot of this rank's part of each chunk: its input, or the partial sum that it has so far.
using Parts = std::vector<Slot>;
Parts inputs(const Schedule &schedule);

// The phases of an algorithm, and their properties that are known without writing a schedule.
struct Phases {
    // The reduce-scatter phase: afterwards the parts of this rank's own chunks are the group's
    // sums.
    void (*collect)(Schedule &schedule, const Group &group, Parts &parts);
    // The all-gather phase: the outputs of chunks go from their owners to all members.
    void (*deliver)(Schedule &schedule, const Group &group);
    // Returns the order of the sum that ends at position `owner`; `members` are the members' parts,
    // by position.
    SumOrder::Term (*fold)(std::vector<SumOrder::Term> members, uint32_t owner);
    // Returns the number of contributions in all values that are encoded on the way to the owner;
    // `weights` has the contributions of each member, by position.
    double (*encoded)(std::span<const uint32_t> weights, uint32_t owner);
    uint32_t (*rounds)(uint32_t size); // of each of the two phases
};

// Write the schedule of a whole team in which every member owns a chunk.
Schedule all_reduce_by(const Phases &phases, const Group &team, uint32_t outbox);
Schedule reduce_scatter_by(const Phases &phases, const Group &team, uint32_t outbox);
Schedule all_gather_by(const Phases &phases, const Group &team);

} // namespace qccl
