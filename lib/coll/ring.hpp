// Ring: every chunk travels from neighbour to neighbour. The fewest bytes and the most rounds.
// Neighbours are those of the team's places, so that a ring enters and leaves each host once. Where
// the places have several rings, which use different links, chunks may go by all of them.
#pragma once

#include "base/types.hpp"
#include "coll/algorithm.hpp"
#include "coll/phases.hpp"

namespace qccl {

extern const Phases ring_phases;

// Which of the places' rings are used.
inline constexpr std::string_view ring_words[] = {"first", "all"};

Schedule all_reduce_ring(const Team &team, const Choices &choices);
Schedule reduce_scatter_ring(const Team &team, const Choices &choices);
Schedule all_gather_ring(const Team &team, const Choices &choices);
Schedule broadcast_ring(const Team &team, const Choices &choices);

// From the position where the chunk starts on its way round to the one where it ends.
SumOrder order_ring(Collective collective, const Team &team, const Choices &choices,
                    uint32_t chunk);
uint32_t rounds_ring(Collective collective, uint32_t ranks);
// Between hosts, on average over the ways of the chunks, rounded up.
uint32_t outer_rounds_ring(Collective collective, const Team &team);
double noise_ring(Collective collective, uint32_t ranks);

} // namespace qccl
