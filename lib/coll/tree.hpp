// Tree: sums go up to one rank, and the result comes down as that rank encoded it. Few rounds, few
// messages, and segments that follow one another up and down. Pure; any thread may call.
#pragma once

#include "coll/algorithm.hpp"
#include "coll/phases.hpp"

#include <string_view>
#include <vector>

namespace qccl {

// binomial: one tree for all of the data, whose ranks have up to log2(P) children. double: two
// trees for half of the data each, whose ranks have at most two children; an inner rank of one tree
// is a leaf of the other.
inline constexpr std::string_view tree_shapes[] = {"binomial", "double"};

// Within a group each chunk has its own binomial tree, whose root is the chunk's owner.
extern const Phases tree_phases;

Schedule all_reduce_tree(const Team &team, const Choices &choices);
Schedule broadcast_tree(const Team &team, const Choices &choices);

// Returns, by rank, the rank that it sends its sums to in the tree of one chunk; the root is its
// own parent.
std::vector<uint32_t> tree_parents(const Team &team, const Choices &choices, uint32_t chunk);

SumOrder by_tree(Collective collective, const Team &team, const Choices &choices, uint32_t chunk);
uint32_t rounds_tree(Collective collective, const Team &team, const Choices &choices);
uint32_t outer_rounds_tree(Collective collective, const Team &team, const Choices &choices);
double noise_tree(Collective collective, const Team &team, const Choices &choices);

} // namespace qccl
