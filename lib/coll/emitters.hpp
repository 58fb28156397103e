// The functions that the table of algorithms (algorithm.cpp) names: for each algorithm those that
// write a rank's schedule of a collective, and its order of summation, rounds and noise. An
// algorithm's .cpp, whose opening comment describes it, is named at its section; hierarchy composes
// the phases of the others. Pure; any thread may call.
#pragma once

#include "base/types.hpp"
#include "coll/algorithm.hpp"
#include "coll/groups.hpp"
#include "schedule/noise_moments.hpp"
#include "schedule/schedule.hpp"

#include <string_view>
#include <vector>

namespace qccl {

// ---- Direct (direct.cpp)

// Its reduce-scatter phase accepts inputs only: a partial sum cannot be added in the middle of a
// sum.
extern const GroupPhases direct_phases;
// Its reduce-scatter phase accepts partial sums: the owner's own part comes first, then those of
// the other members in the group's order.
extern const GroupPhases star_phases;

Schedule all_reduce_direct(const Team &team);
Schedule reduce_scatter_direct(const Team &team);
Schedule all_gather_direct(const Team &team);
Schedule broadcast_direct(const Team &team);
Schedule reduce_direct(const Team &team);
Schedule gather_direct(const Team &team);
Schedule scatter_direct(const Team &team);
Schedule all_to_all_direct(const Team &team);
Schedule send_direct(const Team &team);

// Every member sends each other member its input of the chunks that the other one owns.
void scatter_inputs(Schedule &schedule, const Group &group);
// Adds all members' contributions to the chunk in the group's order: this rank's own input, and
// what each other member sends now, which is received into wire slots. Returns the slot of the sum.
Slot receive_and_sum(Schedule &schedule, const Group &group, uint32_t chunk, OwnInput own);

uint32_t rounds_direct(Collective collective, uint32_t ranks);
NoiseMoments noise_direct(Collective collective, uint32_t ranks);

// ---- Oneshot

Schedule all_reduce_oneshot(const Team &team);
Schedule reduce_scatter_oneshot(const Team &team);
Schedule broadcast_oneshot(const Team &team);
Schedule reduce_oneshot(const Team &team);
Schedule scan_oneshot(const Team &team);
Schedule exscan_oneshot(const Team &team);
// An all-reduce of no values: no rank has the result before all ranks have called.
Schedule barrier_oneshot(const Team &team);

uint32_t rounds_oneshot(Collective collective, uint32_t ranks);
NoiseMoments noise_oneshot(Collective collective, uint32_t ranks);

// ---- Ring (ring.cpp)

extern const GroupPhases ring_phases;

// Which rings of the topology are used.
inline constexpr std::string_view ring_words[] = {"first", "all"};

Schedule all_reduce_ring(const Team &team, const Choices &choices);
Schedule reduce_scatter_ring(const Team &team, const Choices &choices);
Schedule all_gather_ring(const Team &team, const Choices &choices);
Schedule broadcast_ring(const Team &team, const Choices &choices);
Schedule reduce_ring(const Team &team, const Choices &choices);

// Returns the order of the sum: from the position where the chunk starts to the one where it ends.
SumOrder order_ring(Collective collective, const Team &team, const Choices &choices,
                    uint32_t chunk);
uint32_t rounds_ring(Collective collective, uint32_t ranks);
// The rounds between hosts, averaged over the paths of the chunks and rounded up.
uint32_t outer_rounds_ring(Collective collective, const Team &team);
NoiseMoments noise_ring(Collective collective, uint32_t ranks);
// The noise of a sum that passes one rank after the other: each but the last encodes it.
NoiseMoments noise_of_turns(uint32_t ranks);

// ---- Recursive halving (halving_doubling.cpp)

extern const GroupPhases halving_phases;

Schedule all_reduce_halving(const Team &team);
Schedule reduce_scatter_halving(const Team &team);
Schedule all_gather_halving(const Team &team);
Schedule reduce_halving(const Team &team);

SumOrder by_halving(Collective collective, uint32_t ranks, uint32_t chunk);
uint32_t rounds_halving(Collective collective, const Team &team);
NoiseMoments noise_halving(Collective collective, uint32_t ranks);

// ---- Recursive doubling (halving_doubling.cpp)

Schedule all_reduce_doubling(const Team &team);
// An all-reduce of no values: no rank has its result before all ranks have called.
Schedule barrier_doubling(const Team &team);
Schedule scan_doubling(const Team &team);
Schedule exscan_doubling(const Team &team);

SumOrder by_doubling(Collective collective, const Team &team, uint32_t chunk);
uint32_t rounds_doubling(Collective collective, uint32_t ranks);
NoiseMoments noise_doubling(Collective collective, uint32_t ranks);

// ---- Tree (tree.cpp)

// binomial: one tree for all of the data, whose ranks have up to log2(P) children. double: two
// trees for half of the data each, whose ranks have at most two children; an inner rank of one tree
// is a leaf of the other.
inline constexpr std::string_view tree_shapes[] = {"binomial", "double"};

// Within a group each chunk has its own binomial tree, whose root is the chunk's owner.
extern const GroupPhases tree_phases;

Schedule all_reduce_tree(const Team &team, const Choices &choices);
Schedule broadcast_tree(const Team &team, const Choices &choices);
Schedule reduce_tree(const Team &team, const Choices &choices);
// The parts travel one by one, each unchanged, through all ranks between its own rank and the root.
// With two trees each takes every other part.
Schedule gather_tree(const Team &team, const Choices &choices);
Schedule scatter_tree(const Team &team, const Choices &choices);

// Returns, by rank, the rank that it sends its sums to in the tree of one chunk; the root is its
// own parent.
std::vector<uint32_t> tree_parents(const Team &team, const Choices &choices, uint32_t chunk);

SumOrder by_tree(Collective collective, const Team &team, const Choices &choices, uint32_t chunk);
uint32_t rounds_tree(Collective collective, const Team &team, const Choices &choices);
uint32_t outer_rounds_tree(Collective collective, const Team &team, const Choices &choices);
NoiseMoments noise_tree(Collective collective, const Team &team, const Choices &choices);

// ---- Pairwise (pairwise.cpp)

Schedule all_to_all_pairwise(const Team &team);

uint32_t rounds_pairwise(Collective collective, uint32_t ranks);
// Of every algorithm that encodes the parts of ranks once, and keeps a rank's own as it is.
NoiseMoments noise_of_parts(Collective collective, uint32_t ranks);

// ---- Neighbour exchange (neighbour.cpp)

Schedule all_gather_neighbour(const Team &team);

uint32_t rounds_neighbour(Collective collective, uint32_t ranks);
NoiseMoments noise_neighbour(Collective collective, uint32_t ranks);

// ---- Bruck (bruck.cpp)

Schedule all_gather_bruck(const Team &team);
Schedule all_to_all_bruck(const Team &team);

uint32_t rounds_bruck(Collective collective, uint32_t ranks);
NoiseMoments noise_bruck(Collective collective, uint32_t ranks);

// ---- Chain (chain.cpp)

Schedule reduce_chain(const Team &team);
Schedule scan_chain(const Team &team);
Schedule exscan_chain(const Team &team);

SumOrder by_chain(Collective collective, const Team &team, uint32_t chunk);
uint32_t rounds_chain(Collective collective, uint32_t ranks);
uint32_t outer_rounds_chain(Collective collective, const Team &team);
NoiseMoments noise_chain(Collective collective, uint32_t ranks);

// ---- Hierarchy (hierarchy.cpp)

// The phases within the nearest groups; levels that sum partial sums use those of `outer`.
inline constexpr std::string_view inner_words[] = {"direct", "ring", "halving", "tree"};
inline constexpr std::string_view outer_words[] = {"ring", "halving", "direct", "tree"};
// The leaders, which forward between groups: every rank of a group a share of the data (as many
// shares as the smallest group has ranks), or one rank for all of the data.
inline constexpr std::string_view share_words[] = {"every", "leader"};
// The codec of partial sums below the outermost tier, if the call's codec is lossy. Results travel
// with the call's codec everywhere.
inline constexpr std::string_view inner_codec_words[] = {
    "none",   "fp16",     "bf16", "fp8e4m3", "fp8e5m2", "int12",     "int10",     "int8",  "int6",
    "int5",   "int4",     "int3", "int2",    "minmax",  "mxfp8e4m3", "mxfp6e2m3", "mxfp4", "nvfp4",
    "onebit", "terngrad", "topk", "norm",    "dgc",     "dummy",     "lossless",  "tbq",   "bound"};

// For all_reduce, reduce_scatter, all_gather, broadcast, reduce and all_to_all.
Schedule emit_hierarchy(Collective collective, const Team &team, const Choices &choices);

SumOrder by_hierarchy(Collective collective, const Team &team, const Choices &choices,
                      uint32_t chunk);
uint32_t rounds_hierarchy(Collective collective, const Team &team, const Choices &choices);
uint32_t outer_rounds_hierarchy(Collective collective, const Team &team, const Choices &choices);
NoiseMoments noise_hierarchy(Collective collective, const Team &team, const Choices &choices);
NoiseMoments inner_noise_hierarchy(Collective collective, const Team &team, const Choices &choices);

} // namespace qccl
