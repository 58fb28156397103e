// Builds groups of ranks, composes the schedules of whole teams from phases, and builds the tree of
// groups from a team's topology and finds leaders in it.
#include "coll/groups.hpp"

#include <algorithm>
#include <numeric>

namespace qccl {

// ---- A group

Group::Group(std::vector<uint32_t> members, uint32_t rank)
    : ranks(std::move(members)), own(position(rank)), chunks(ranks.size()) {}

uint32_t Group::position(uint32_t rank) const {
    return static_cast<uint32_t>(std::find(ranks.begin(), ranks.end(), rank) - ranks.begin());
}

std::vector<uint32_t> ranks_in_turn(uint32_t ranks) {
    std::vector<uint32_t> all(ranks);
    std::iota(all.begin(), all.end(), 0U);
    return all;
}

Group each_with_its_own(std::vector<uint32_t> ranks, uint32_t rank) {
    Group group(std::move(ranks), rank);
    for (uint32_t at = 0; at < group.size(); at++) group.chunks[at].push_back(group.ranks[at]);
    return group;
}

Group each_with_its_own(const Team &team) {
    return each_with_its_own(ranks_in_turn(team.size), team.rank);
}

// ---- The phases of an algorithm

Parts inputs(const Schedule &schedule) {
    Parts parts;
    for (uint32_t c = 0; c < schedule.chunks; c++) parts.push_back(input(c));
    return parts;
}

Schedule reduce_scatter_by(const GroupPhases &phases, const Group &team, uint32_t outbox) {
    Schedule s{.chunks = team.size(), .outbox = outbox};
    Parts parts = inputs(s);
    phases.reduce_scatter(s, team, parts);
    for (const uint32_t c : team.own_chunks()) s.finish(output(c), parts[c]);
    return s;
}

Schedule all_reduce_by(const GroupPhases &phases, const Group &team, uint32_t outbox) {
    Schedule s = reduce_scatter_by(phases, team, outbox);
    phases.all_gather(s, team);
    return s;
}

// A rank encodes only one chunk, its own.
Schedule all_gather_by(const GroupPhases &phases, const Group &team) {
    Schedule s{.chunks = team.size(), .outbox = std::min(team.size() - 1, 1U)};
    for (const uint32_t c : team.own_chunks()) s.copy(output(c), input(c));
    phases.all_gather(s, team);
    return s;
}

Schedule reduce_by(const GroupPhases &phases, const Group &team, uint32_t root, uint32_t outbox) {
    Schedule s{.chunks = team.size(), .outbox = outbox};
    Parts parts = inputs(s);
    phases.reduce_scatter(s, team, parts);
    gather_sums(s, team, root, parts);
    return s;
}

void gather_sums(Schedule &s, const Group &g, uint32_t root, const Parts &parts) {
    if (g.ranks[g.own] != root) {
        for (const uint32_t c : g.own_chunks()) s.send_finished(root, parts[c]);
        return;
    }
    for (const uint32_t c : g.own_chunks()) s.finish(output(c), parts[c]);
    for (uint32_t i = 1; i < g.size(); i++)
        for (const uint32_t c : g.chunks[g.before(i)]) s.recv(g.ranks[g.before(i)], output(c));
}

void receive_part(Schedule &s, const Team &t, uint32_t from, uint32_t giver) {
    const uint32_t chunk = t.chunk_with(giver);
    const Slot came = wire(s.wires);
    s.recv(from, came, chunk);
    s.copy(output(chunk), came);
}

// ---- Groups within groups

TierTree::TierTree(const Team &team) {
    const auto add = [&](uint32_t groups, auto group_of) {
        Level level{.parts = std::vector<std::vector<uint32_t>>(groups),
                    .of_rank = {},
                    .ranks = std::vector<uint32_t>(groups)};
        for (uint32_t rank = 0; rank < team.size; rank++) {
            level.of_rank.push_back(group_of(rank));
            level.ranks[level.of_rank.back()]++;
        }
        const bool has_ranks = levels_.empty();
        const uint32_t parts = has_ranks ? team.size : this->groups(levels() - 1);
        std::vector<bool> is_known(parts);
        for (uint32_t rank = 0; rank < team.size; rank++) {
            const uint32_t part = has_ranks ? rank : this->group_of(levels() - 1, rank);
            if (is_known[part]) continue;
            is_known[part] = true;
            level.parts[level.of_rank[rank]].push_back(part);
        }
        levels_.push_back(std::move(level));
    };
    if (team.places)
        for (const Partition &tier : team.places->tiers())
            add(static_cast<uint32_t>(tier.groups()),
                [&](uint32_t rank) { return tier.group_of(rank); });
    add(1, [](uint32_t) { return 0U; });
}

std::vector<uint32_t> TierTree::members(uint32_t level, uint32_t group,
                                        const ChunkRoute &route) const {
    std::vector<uint32_t> found = parts(level, group);
    if (level != 0)
        for (uint32_t &part : found) part = leader(level - 1, part, route);
    return found;
}

std::vector<uint32_t> TierTree::places(uint32_t level, const ChunkRoute &route) const {
    std::vector<uint32_t> found;
    for (uint32_t below = 0; below < level; below++) found.push_back(leader_place(below, route));
    return found;
}

// Returns the index of the part that contains the rank, among the parts of the rank's group at the
// level.
uint32_t TierTree::place(uint32_t level, uint32_t rank) const {
    const auto &all = parts(level, group_of(level, rank));
    const uint32_t part = level == 0 ? rank : group_of(level - 1, rank);
    return static_cast<uint32_t>(std::find(all.begin(), all.end(), part) - all.begin());
}

uint32_t TierTree::home(uint32_t level, const ChunkRoute &route) const {
    if (level == 0) return route.owner;
    return leader(level - 1, group_of(level - 1, route.owner), route);
}

uint32_t TierTree::leader(uint32_t level, uint32_t group, const ChunkRoute &route) const {
    const auto &all = parts(level, group);
    const uint32_t part = all[leader_place(level, route) % all.size()];
    return level == 0 ? part : leader(level - 1, part, route);
}

uint32_t TierTree::leader_place(uint32_t level, const ChunkRoute &route) const {
    const bool is_shared = !is_top(level) && !route.shares.empty();
    return is_shared ? route.shares[level] : place(level, route.owner);
}

std::vector<uint32_t> TierTree::weights(uint32_t level, uint32_t group) const {
    std::vector<uint32_t> all;
    for (const uint32_t part : parts(level, group))
        all.push_back(level == 0 ? 1 : levels_[level - 1].ranks[part]);
    return all;
}

uint32_t TierTree::largest(uint32_t level) const {
    size_t most = 0;
    for (const auto &all : levels_[level].parts) most = std::max(most, all.size());
    return static_cast<uint32_t>(most);
}

uint32_t TierTree::pick(uint32_t level, uint32_t group, const std::vector<uint32_t> &shares) const {
    const uint32_t part = parts(level, group)[shares[level]];
    return level == 0 ? part : pick(level - 1, part, shares);
}

std::vector<std::vector<uint32_t>> TierTree::shares(bool has_leaders) const {
    std::vector<std::vector<uint32_t>> found{{}};
    for (uint32_t level = 0; !is_top(level); level++) {
        uint32_t fewest = has_leaders ? 1 : largest(level);
        for (const auto &all : levels_[level].parts)
            fewest = std::min(fewest, static_cast<uint32_t>(all.size()));
        std::vector<std::vector<uint32_t>> longer;
        for (const auto &choice : found)
            for (uint32_t share = 0; share < fewest; share++) {
                longer.push_back(choice);
                longer.back().push_back(share);
            }
        found = std::move(longer);
    }
    return found;
}

} // namespace qccl
