#include "coll/nest.hpp"

#include "coll/group.hpp"

#include <algorithm>

namespace qccl {

Nest::Nest(const Team &team) {
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

std::vector<uint32_t> Nest::members(uint32_t level, uint32_t group, uint32_t owner) const {
    std::vector<uint32_t> found = parts(level, group);
    if (level != 0)
        for (uint32_t &part : found) part = carrier(level - 1, part, owner);
    return found;
}

// Of the rank's group at the level, or of its part there, the how manieth part the rank is in.
uint32_t Nest::place(uint32_t level, uint32_t rank) const {
    const auto &all = parts(level, group_of(level, rank));
    const uint32_t part = level == 0 ? rank : group_of(level - 1, rank);
    return static_cast<uint32_t>(std::find(all.begin(), all.end(), part) - all.begin());
}

uint32_t Nest::carrier(uint32_t level, uint32_t group, uint32_t owner) const {
    if (group_of(level, owner) == group) return owner;
    const auto &all = parts(level, group);
    const uint32_t part = all[place(level, owner) % all.size()];
    return level == 0 ? part : carrier(level - 1, part, owner);
}

std::vector<uint32_t> Nest::weights(uint32_t level, uint32_t group) const {
    std::vector<uint32_t> all;
    for (const uint32_t part : parts(level, group))
        all.push_back(level == 0 ? 1 : levels_[level - 1].ranks[part]);
    return all;
}

uint32_t Nest::largest(uint32_t level) const {
    size_t most = 0;
    for (const auto &all : levels_[level].parts) most = std::max(most, all.size());
    return static_cast<uint32_t>(most);
}

uint32_t Nest::pick(uint32_t level, uint32_t group, const std::vector<uint32_t> &shares) const {
    const uint32_t part = parts(level, group)[shares[level]];
    return level == 0 ? part : pick(level - 1, part, shares);
}

std::vector<uint32_t> Nest::owners(bool has_leaders) const {
    const uint32_t top = levels() - 1;
    std::vector<uint32_t> most(levels(), 1);
    for (uint32_t level = 0; level < top && !has_leaders; level++) {
        most[level] = largest(level);
        for (uint32_t group = 0; group < groups(level); group++)
            most[level] = std::min(most[level], static_cast<uint32_t>(parts(level, group).size()));
    }
    most[top] = static_cast<uint32_t>(parts(top, 0).size());

    // The part at the top changes fastest.
    std::vector<uint32_t> found, shares(levels());
    while (true) {
        found.push_back(pick(top, 0, shares));
        uint32_t level = levels();
        while (level > 0 && shares[level - 1] + 1 == most[level - 1]) shares[--level] = 0;
        if (level == 0) return found;
        shares[level - 1]++;
    }
}

} // namespace qccl
