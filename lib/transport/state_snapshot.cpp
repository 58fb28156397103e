// Reads the states of ranks from their segments.
#include "transport/state_snapshot.hpp"

namespace qccl {

static RankState look_at(const PeerTable &peer_table, const CallHistory &history, uint32_t rank,
                         int64_t now_ns) {
    const RankStatus &status = peer_table.segments[rank].status();
    RankState state{.rank = rank};
    // `ended` is read first: if the rank goes on meanwhile, it still does not seem to have ended a
    // call that it has not begun.
    state.ended = status.ended.load(std::memory_order_acquire);
    state.begun = history.begun(rank);
    state.call = history.find(rank, state.begun);
    state.is_remote = !peer_table.is_local(rank);
    state.has_left = status.has_left.load(std::memory_order_acquire) != 0;
    const uint32_t waits_on = status.waits_on.load(std::memory_order_acquire);
    if (waits_on == 0 || waits_on > peer_table.size()) return state;
    state.wait = Wait(waits_on - 1);
    // What a remote rank has told says nothing about the time since.
    if (!state.is_remote)
        state.silent_ns = now_ns - status.awake_ns.load(std::memory_order_relaxed);
    return state;
}

std::vector<RankState> snapshot_states(const PeerTable &peer_table, const CallHistory &history,
                                       const LivenessMonitor &liveness, int64_t now_ns) {
    std::vector<RankState> states;
    for (uint32_t rank = 0; rank < peer_table.size(); rank++) {
        states.push_back(look_at(peer_table, history, rank, now_ns));
        RankState &state = states.back();
        state.has_left |= liveness.has_left(rank);
        if (liveness.has_ended(rank)) state.process = RankState::Process::ended;
    }
    return states;
}

} // namespace qccl
