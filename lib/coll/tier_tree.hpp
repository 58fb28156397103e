// The groups within groups of a team, and the leaders that forward a chunk for each group. Used by
// hierarchy. Pure; any thread may call.
#pragma once

#include "schedule/schedule.hpp"

#include <cstdint>
#include <vector>

namespace qccl {

// The owner of a chunk, where the chunk begins or ends, and the parts that forward it from group to
// group.
struct ChunkRoute {
    uint32_t owner = 0;
    // By level below the top, the index of the part of each group that forwards. Empty: the owner
    // forwards in its own groups, and in other groups the member at the owner's position.
    std::vector<uint32_t> shares = {};
};

// Level 0 has the groups of ranks that are nearest to each other; the top level has one group with
// all ranks. The members of a group are, for each chunk, the leaders of the parts that the group
// consists of.
class TierTree {
public:
    explicit TierTree(const Team &team);

    uint32_t levels() const { return static_cast<uint32_t>(levels_.size()); }
    bool is_top(uint32_t level) const { return level + 1 == levels(); }
    uint32_t group_of(uint32_t level, uint32_t rank) const { return levels_[level].of_rank[rank]; }
    uint32_t groups(uint32_t level) const {
        return static_cast<uint32_t>(levels_[level].parts.size());
    }
    std::vector<uint32_t> members(uint32_t level, uint32_t group, const ChunkRoute &route) const;
    // Returns a key: routes with equal keys have equal members in every group of the level.
    std::vector<uint32_t> places(uint32_t level, const ChunkRoute &route) const;
    // Returns the member that handles the chunk also at the level above; at the top this is home().
    uint32_t leader(uint32_t level, uint32_t group, const ChunkRoute &route) const;
    // Returns the leader's index among the members, modulo their number; the same for all groups of
    // the level.
    uint32_t leader_place(uint32_t level, const ChunkRoute &route) const;
    // Returns the member of the owner's group that is the owner or has the owner's part.
    uint32_t home(uint32_t level, const ChunkRoute &route) const;
    bool is_home(uint32_t level, uint32_t group, const ChunkRoute &route) const {
        return group_of(level, route.owner) == group;
    }
    // Returns the number of contributions that each member has when it reaches the level.
    std::vector<uint32_t> weights(uint32_t level, uint32_t group) const;
    uint32_t largest(uint32_t level) const;

    // Returns all combinations of a part that every group of a level has, for each level below the
    // top; the lowest level's part changes slowest. With leaders, the only combination has the
    // first parts.
    std::vector<std::vector<uint32_t>> shares(bool has_leaders) const;
    // Returns the rank that the combination selects, from the group on down.
    uint32_t pick(uint32_t level, uint32_t group, const std::vector<uint32_t> &shares) const;
    // The parts of a group: ranks at level 0, else groups of the level below.
    const std::vector<uint32_t> &parts(uint32_t level, uint32_t group) const {
        return levels_[level].parts[group];
    }

private:
    struct Level {
        std::vector<std::vector<uint32_t>> parts; // by group
        std::vector<uint32_t> of_rank;            // group of each rank
        std::vector<uint32_t> ranks;              // number of ranks, by group
    };
    uint32_t place(uint32_t level, uint32_t rank) const;

    std::vector<Level> levels_;
};

} // namespace qccl
