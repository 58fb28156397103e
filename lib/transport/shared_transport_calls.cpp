// How ranks keep their calls in step: they meet, compare the calls that they have begun, and fail
// all ranks where those differ. Called by the thread that makes the calls; waits for other ranks.
#include "transport/shared_transport.hpp"

#include <algorithm>

namespace qccl {

// A rank that has come has published what it calls, which is compared at once.
template <class Condition>
Done SharedTransport::await_rank(uint32_t peer, const Condition &has_come) {
    while (!has_come()) QCCL_TRY(wait({peer, WaitPhase::meeting}));
    vigil_.came();
    if (const auto differs = history_.disagreement(peer)) return mismatch(*differs);
    return {};
}

// The peer has begun the call, and its descriptor is here. A rank of another host may tell of a
// later call first, as the goodbye of one that has failed does.
bool SharedTransport::has_described(uint32_t peer, uint64_t call) const {
    return history_.begun(peer) >= call && (party_.is_near(peer) || history_.find(peer, call));
}

void SharedTransport::publish_call() {
    if (is_call_published_) return;
    is_call_published_ = true;
    history_.publish();
    recorder_.began(history_.current(), history_.hash());
}

Done SharedTransport::meet() {
    const uint64_t call = history_.current().call;
    for (uint32_t i = 1; i < size(); i++) party_.wake((rank() + i) % size());
    if (courier_) courier_->announce();
    for (uint32_t i = 1; i < size(); i++) {
        const uint32_t peer = (rank() + i) % size();
        QCCL_TRY(await_rank(peer, [&] { return has_described(peer, call); }));
    }
    together_ = call;
    return {};
}

Done SharedTransport::confirm_calls(std::chrono::nanoseconds timeout) {
    const uint64_t call = history_.current().call;
    vigil_.limit(timeout);
    if (courier_ && call != 0) courier_->ask_all(call);
    // A rank of another host answers, unless it has left in good order before the question.
    const auto is_known = [&](uint32_t peer) {
        return has_described(peer, call) || (history_.begun(peer) >= call && vigil_.is_gone(peer));
    };
    for (uint32_t peer = 0; peer < size() && call != 0; peer++)
        if (peer != rank()) QCCL_TRY(await_rank(peer, [&] { return is_known(peer); }));
    if (const auto failure = this->failure()) return told(*failure);
    return {};
}

// Waits until nobody needs the descriptor that this call's will overwrite.
Done SharedTransport::keep_together(uint64_t call) {
    together_ = call - 1;
    for (uint32_t peer = 0; peer < size(); peer++) {
        if (peer == rank()) continue;
        QCCL_TRY(await_rank(peer, [&] { return history_.begun(peer) + calls_kept > call; }));
        together_ = std::min(together_, history_.begun(peer));
    }
    return {};
}

Error SharedTransport::mismatch(uint64_t call) {
    publish_call();
    return told(vigil_.mismatch(call));
}

Error SharedTransport::mismatch_of_shrink(uint64_t call) {
    // A shrink has no number of its own, since it also works where ranks have failed in different
    // calls: here it takes that of the call that the other rank makes instead.
    if (call > history_.current().call) {
        call = history_.current().call + 1;
        history_.begin({.collective = comm_shrink}, {.call = call});
        history_.publish();
    }
    return mismatch(call);
}

} // namespace qccl
