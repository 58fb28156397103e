// Groups of ranks, and the phases that run within them; schedules are composed of phases. A group
// sums chunks, each at the member that owns it, or distributes chunks from their owners to all
// members. A Split halves a range of positions, for halving and doubling. A TierTree has the groups
// within groups of a team and the leaders that forward a chunk for each group, for hierarchy. Used
// by the algorithms. Pure; any thread may call.
#pragma once

#include "schedule/noise_moments.hpp"
#include "schedule/schedule.hpp"

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

namespace qccl {

// ---- A group

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

// ---- Halves of a range

// The positions [begin, end); the lower half may be larger by one.
struct Split {
    uint32_t begin, middle, end;

    static Split of(uint32_t begin, uint32_t end) {
        return {begin, begin + (end - begin + 1) / 2, end};
    }
    bool is_lower(uint32_t at) const { return at < middle; }
    // Returns the half that contains the position, and the other half.
    Split half(uint32_t at) const { return is_lower(at) ? of(begin, middle) : of(middle, end); }
    Split other(uint32_t at) const { return is_lower(at) ? of(middle, end) : of(begin, middle); }
    uint32_t size() const { return end - begin; }

    // The extra position of a larger lower half has the same partner as its neighbour.
    uint32_t partner(uint32_t at) const {
        return is_lower(at) ? std::min(middle + (at - begin), end - 1) : begin + (at - middle);
    }
    // Returns the positions whose partner is `at`, in increasing order.
    std::vector<uint32_t> partners_of(uint32_t at) const {
        const Split theirs = other(at);
        std::vector<uint32_t> found;
        for (uint32_t peer = theirs.begin; peer < theirs.end; peer++)
            if (partner(peer) == at) found.push_back(peer);
        return found;
    }
};

// Returns the splits that contain `at`, from all `size` positions down to the smallest one.
inline std::vector<Split> splits_of(uint32_t size, uint32_t at) {
    std::vector<Split> splits;
    for (Split split = Split::of(0, size); split.size() > 1; split = split.half(at))
        splits.push_back(split);
    return splits;
}

// ---- The phases of an algorithm

// The slot of this rank's part of each chunk: its input, or the partial sum that it has so far.
using Parts = std::vector<Slot>;
Parts inputs(const Schedule &schedule);

// The phases of an algorithm, and their properties that are known without writing a schedule.
struct GroupPhases {
    // The reduce-scatter phase: afterwards the parts of this rank's own chunks are the group's
    // sums.
    void (*reduce_scatter)(Schedule &schedule, const Group &group, Parts &parts);
    // The all-gather phase: the outputs of chunks go from their owners to all members.
    void (*all_gather)(Schedule &schedule, const Group &group);
    // Returns the order of the sum that ends at position `owner`; `members` are the members' parts,
    // by position.
    SumOrder::Term (*fold)(std::vector<SumOrder::Term> members, uint32_t owner);
    // Returns the moments of the numbers of contributions in the values that are encoded on the way
    // to the owner; `weights` has the contributions of each member, by position.
    NoiseMoments (*encoded)(std::span<const uint32_t> weights, uint32_t owner);
    uint32_t (*rounds)(uint32_t size); // of each of the two phases
};

// Write the schedule of a whole team in which every member owns a chunk.
Schedule all_reduce_by(const GroupPhases &phases, const Group &team, uint32_t outbox);
Schedule reduce_scatter_by(const GroupPhases &phases, const Group &team, uint32_t outbox);
Schedule all_gather_by(const GroupPhases &phases, const Group &team);
Schedule reduce_by(const GroupPhases &phases, const Group &team, uint32_t root, uint32_t outbox);

// The chunk of the part that a rank has for another one, see Team::chunk_with.
inline uint32_t chunk_between(const Team &team, uint32_t giver, uint32_t taker) {
    return Team{.size = team.size, .rank = giver}.chunk_with(taker);
}

// Receives the part that a rank has for this one. In place it takes the place of the part for that
// rank, and is stored when that part has been sent.
void receive_part(Schedule &schedule, const Team &team, uint32_t from, uint32_t giver);

// Sends the sums of the chunks from their owners to the root, which is a member. `parts`: the sums
// of this rank's own chunks. An owner keeps nothing of its sums.
void gather_sums(Schedule &schedule, const Group &group, uint32_t root, const Parts &parts);

// ---- Groups within groups

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
