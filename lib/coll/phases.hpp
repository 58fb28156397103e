// What an algorithm does within a group is a phase; schedules are made of phases. Knows none of the
// algorithms.
#pragma once

#include "coll/group.hpp"
#include "schedule/sum_order.hpp"

namespace qccl {

// Where this rank has its part of each chunk: its input, or what it has summed so far.
using Parts = std::vector<Slot>;
Parts inputs(const Schedule &schedule);

// What an algorithm does within a group, and what is known of that without doing it.
struct Phases {
    // Afterwards the parts of the rank's own chunks are the group's sums.
    void (*collect)(Schedule &schedule, const Group &group, Parts &parts);
    // Outputs of chunks go from their owners to everybody.
    void (*deliver)(Schedule &schedule, const Group &group);
    // The sum that ends at position `owner`, of what the members have, by position.
    SumOrder::Term (*fold)(std::vector<SumOrder::Term> members, uint32_t owner);
    // Contributions in all that is encoded on the way to the owner; `weights` are those of the
    // members, by position.
    double (*encoded)(std::span<const uint32_t> weights, uint32_t owner);
    uint32_t (*rounds)(uint32_t size); // of each of the two
};

// Schedules of a whole team whose members own a chunk each.
Schedule all_reduce_by(const Phases &phases, const Group &team, uint32_t outbox);
Schedule reduce_scatter_by(const Phases &phases, const Group &team, uint32_t outbox);
Schedule all_gather_by(const Phases &phases, const Group &team);

} // namespace qccl
