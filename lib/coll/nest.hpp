// A team's groups within groups, and who carries a chunk for each of them. Knows no steps.
#pragma once

#include "schedule/schedule.hpp"

#include <cstdint>
#include <vector>

namespace qccl {

// Whose a chunk is, where it begins or ends, and who carries it from group to group.
struct Route {
    uint32_t owner = 0;
    // By level below the top, the part of each group that does. Empty: the owner does in its own
    // groups, in others whoever stands where the owner does.
    std::vector<uint32_t> shares = {};
};

// Level 0 are the groups of ranks that are nearest each other; at the top one group has all. The
// members of a group are, for each chunk, the carriers of the groups that it is made of.
class Nest {
public:
    explicit Nest(const Team &team);

    uint32_t levels() const { return static_cast<uint32_t>(levels_.size()); }
    bool is_top(uint32_t level) const { return level + 1 == levels(); }
    uint32_t group_of(uint32_t level, uint32_t rank) const { return levels_[level].of_rank[rank]; }
    uint32_t groups(uint32_t level) const {
        return static_cast<uint32_t>(levels_[level].parts.size());
    }
    std::vector<uint32_t> members(uint32_t level, uint32_t group, const Route &route) const;
    // Routes for which this is equal have equal members in every group of the level.
    std::vector<uint32_t> places(uint32_t level, const Route &route) const;
    // The member that deals with the chunk also at the level above; at the top home().
    uint32_t carrier(uint32_t level, uint32_t group, const Route &route) const;
    // Its place among the members, modulo their number: the same for all groups of the level.
    uint32_t carrier_place(uint32_t level, const Route &route) const;
    // Of the group that the owner is in, the member that is the owner or has its part.
    uint32_t home(uint32_t level, const Route &route) const;
    bool is_home(uint32_t level, uint32_t group, const Route &route) const {
        return group_of(level, route.owner) == group;
    }
    // Contributions that a member has when it comes to the level.
    std::vector<uint32_t> weights(uint32_t level, uint32_t group) const;
    uint32_t largest(uint32_t level) const;

    // All choices of a part that every group of a level has, for each level below the top; the
    // lowest level's changes slowest. With leaders, the first parts alone.
    std::vector<std::vector<uint32_t>> shares(bool has_leaders) const;
    // The rank that the choice leads to, from the group on down.
    uint32_t pick(uint32_t level, uint32_t group, const std::vector<uint32_t> &shares) const;
    // What a group is made of: ranks at level 0, groups of the level below elsewhere.
    const std::vector<uint32_t> &parts(uint32_t level, uint32_t group) const {
        return levels_[level].parts[group];
    }

private:
    struct Level {
        std::vector<std::vector<uint32_t>> parts; // by group
        std::vector<uint32_t> of_rank;            // group of each rank
        std::vector<uint32_t> ranks;              // how many, by group
    };
    uint32_t place(uint32_t level, uint32_t rank) const;

    std::vector<Level> levels_;
};

} // namespace qccl
