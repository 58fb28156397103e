// A group of ranks that sum chunks up, each to its owner among them, or deliver chunks from their
// owners to all. What an algorithm does within one group is a phase; schedules are made of phases.
#pragma once

#include "schedule/schedule.hpp"
#include "schedule/sum_order.hpp"

#include <cstdint>
#include <span>
#include <vector>

namespace qccl {

struct Group {
    std::vector<uint32_t> ranks;               // by position
    uint32_t own = 0;                          // position of the rank whose schedule is written
    std::vector<std::vector<uint32_t>> chunks; // by position: those that it owns

    // One that owns nothing yet, with `rank` among its members.
    Group(std::vector<uint32_t> members, uint32_t rank);

    uint32_t size() const { return static_cast<uint32_t>(ranks.size()); }
    uint32_t position(uint32_t rank) const;
    // Positions round the group.
    uint32_t after(uint32_t distance) const { return (own + distance) % size(); }
    uint32_t before(uint32_t distance) const { return (own + size() - distance % size()) % size(); }
    std::span<const uint32_t> own_chunks() const { return chunks[own]; }
};

std::vector<uint32_t> ranks_in_turn(uint32_t ranks);
// A whole team in which rank r owns chunk r.
Group each_with_its_own(std::vector<uint32_t> ranks, uint32_t rank);

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

} // namespace qccl
