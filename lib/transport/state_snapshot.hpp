// What every rank does at the moment, as far as one rank can tell. The failure detector puts it
// into its warnings and errors. Does not block.
#pragma once

#include "record/rank_state.hpp"
#include "transport/call_history.hpp"
#include "transport/liveness_monitor.hpp"

namespace qccl {

// Returns one state for each rank, by rank. `now_ns` is in the clock of RankStatus::awake_ns.
std::vector<RankState> snapshot_states(const PeerTable &peer_table, const CallHistory &history,
                                       const LivenessMonitor &liveness, int64_t now_ns);

} // namespace qccl
