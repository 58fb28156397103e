#include "transport/survey.hpp"

namespace qccl {

static RankState look_at(const Party &party, const CallHistory &history, uint32_t rank,
                         int64_t now_ns) {
    const Presence &presence = party.segments[rank].presence();
    RankState state{.rank = rank};
    // A rank that goes on meanwhile has not ended what it had not begun.
    state.ended = presence.ended.load(std::memory_order_acquire);
    state.begun = history.begun(rank);
    state.call = history.find(rank, state.begun);
    state.is_far = !party.is_near(rank);
    state.has_left = presence.has_left.load(std::memory_order_acquire) != 0;
    const uint32_t waits_on = presence.waits_on.load(std::memory_order_acquire);
    if (waits_on == 0 || waits_on > party.size()) return state;
    state.wait = Wait(waits_on - 1);
    // What has been told says nothing about the time since.
    if (!state.is_far) state.silent_ns = now_ns - presence.awake_ns.load(std::memory_order_relaxed);
    return state;
}

std::vector<RankState> survey(const Party &party, const CallHistory &history,
                              const Lifelines &lifelines, int64_t now_ns) {
    std::vector<RankState> states;
    for (uint32_t rank = 0; rank < party.size(); rank++) {
        states.push_back(look_at(party, history, rank, now_ns));
        RankState &state = states.back();
        state.has_left |= lifelines.has_left(rank);
        if (lifelines.has_ended(rank)) state.process = RankState::Process::ended;
    }
    return states;
}

} // namespace qccl
