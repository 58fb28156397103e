// What every rank does at the moment, as one of them can tell. Knows not why anybody asks.
#pragma once

#include "record/rank_state.hpp"
#include "transport/call_history.hpp"
#include "transport/lifelines.hpp"

namespace qccl {

// In the order of ranks. `now_ns` as Presence::awake_ns.
std::vector<RankState> survey(const Party &party, const CallHistory &history,
                              const Lifelines &lifelines, int64_t now_ns);

} // namespace qccl
