// Ring: every chunk travels from neighbour to neighbour, with the fewest bytes and the most rounds.
// Neighbours are those of the team's topology, so that a ring enters and leaves each host once. If
// the topology has several rings, which use different links, the chunks may be spread over all of
// them. Pure; any thread may call.
#pragma once

#include "base/types.hpp"
#include "coll/algorithm.hpp"
#include "coll/phases.hpp"

namespace qccl {

extern const Phases ring_phases;

// Which rings of the topology are used.
inline constexpr std::string_view ring_words[] = {"first", "all"};

Schedule all_reduce_ring(const Team &team, const Choices &choices);
Schedule reduce_scatter_ring(const Team &team, const Choices &choices);
Schedule all_gather_ring(const Team &team, const Choices &choices);
Schedule broadcast_ring(const Team &team, const Choices &choices);

// Returns the order of the sum: from the position where the chunk starts to the one where it ends.
SumOrder order_ring(Collective collective, const Team &team, const Choices &choices,
                    uint32_t chunk);
uint32_t rounds_ring(Collective collective, uint32_t ranks);
// The rounds between hosts, averaged over the paths of the chunks and rounded up.
uint32_t outer_rounds_ring(Collective collective, const Team &team);
double noise_ring(Collective collective, uint32_t ranks);

} // namespace qccl
