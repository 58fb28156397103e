// A group of ranks that sum chunks, each at the member that owns it, or distribute chunks from
// their owners to all members. Phases (phases.hpp) work on groups. Pure; any thread may call.
#pragma once

#include "schedule/schedule.hpp"

#include <cstdint>
#include <span>
#include <vector>

namespace qccl {

struct Group {
    std::vector<uint32_t> ranks;               // by position
    uint32_t own = 0;                          // position of the rank whose schedule is written
    std::vector<std::vector<uint32_t>> chunks; // the chunks that each member owns, by position

    // A group that owns no chunks yet, with `rank` among its members.
    Group(std::vector<uint32_t> members, uint32_t rank);

    uint32_t size() const { return static_cast<uint32_t>(ranks.size()); }
    uint32_t position(uint32_t rank) const;
    // The positions `distance` after and before this rank's own, round the group.
    uint32_t after(uint32_t distance) const { return (own + distance) % size(); }
    uint32_t before(uint32_t distance) const { return (own + size() - distance % size()) % size(); }
    std::span<const uint32_t> own_chunks() const { return chunks[own]; }
};

std::vector<uint32_t> ranks_in_turn(uint32_t ranks);
// Returns a whole team in which rank r owns chunk r.
Group each_with_its_own(std::vector<uint32_t> ranks, uint32_t rank);
Group each_with_its_own(const Team &team);

} // namespace qccl
