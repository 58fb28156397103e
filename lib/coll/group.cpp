// Builds groups of ranks.
#include "coll/group.hpp"

#include <algorithm>
#include <numeric>

namespace qccl {

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

} // namespace qccl
