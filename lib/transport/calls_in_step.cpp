// The part of SharedTransport that keeps the ranks' calls in step: ranks meet, compare the calls
// that they have begun, and fail all ranks if the calls differ.
#include "transport/shared_transport.hpp"

#include <algorithm>

namespace qccl {

// Waits until the peer has come. The peer has published its call by then, so the calls are compared
// at once.
template <class Condition>
Done SharedTransport::await_rank(uint32_t peer, const Condition &has_come) {
    {
        const WaitScope waiting(detector_);
        while (!has_come()) QCCL_TRY(wait({peer, WaitPhase::meeting}));
    }
    if (const auto differs = history_.disagreement(peer)) return mismatch(*differs);
    return {};
}

void SharedTransport::message_waits(const MessageWait &wait, int64_t since_ns, int64_t now_ns) {
    RankStatus &status = peer_table_.mine().status();
    status.awake_ns.store(now_ns, std::memory_order_relaxed);
    status.message_wait.store(wait.word(), std::memory_order_release);
    // The record shows one wait, and a call of the communicator is more than a message.
    if (status.begun.load(std::memory_order_relaxed) ==
        status.ended.load(std::memory_order_relaxed))
        recorder_.waits(wait.shown(), since_ns, now_ns);
}

void SharedTransport::message_wait_done() {
    peer_table_.mine().status().message_wait.store(0, std::memory_order_relaxed);
    recorder_.wait_done();
}

// Whether the peer has begun the call and its descriptor is here. A rank of another host may tell
// of a later call first, as the goodbye of a failed rank does.
bool SharedTransport::has_described(uint32_t peer, uint64_t call) const {
    return history_.begun(peer) >= call &&
           (peer_table_.is_local(peer) || history_.find(peer, call));
}

// Ranks that wait for this one look again.
void SharedTransport::announce_call() {
    for (uint32_t i = 1; i < size(); i++) peer_table_.wake((rank() + i) % size());
    if (remote_) remote_->broadcast_status();
}

Done SharedTransport::await_all() {
    const uint64_t call = history_.current().call;
    announce_call();
    for (uint32_t i = 1; i < size(); i++) {
        const uint32_t peer = (rank() + i) % size();
        QCCL_TRY(await_rank(peer, [&] { return has_described(peer, call); }));
    }
    begun_by_all_ = call;
    return {};
}

Result<bool> SharedTransport::have_all_begun() {
    const uint64_t call = history_.current().call;
    announce_call();
    for (uint32_t peer = 0; peer < size(); peer++) {
        if (peer == rank()) continue;
        if (!has_described(peer, call)) return false;
        if (const auto differs = history_.disagreement(peer)) return mismatch(*differs);
    }
    begun_by_all_ = call;
    return true;
}

Done SharedTransport::confirm_calls(std::chrono::nanoseconds timeout) {
    const uint64_t call = history_.current().call;
    detector_.limit(timeout);
    if (remote_ && call != 0) remote_->request_status_of_all(call);
    // A rank of another host answers, unless it left in good order before the request.
    const auto is_known = [&](uint32_t peer) {
        return has_described(peer, call) ||
               (history_.begun(peer) >= call && detector_.is_gone(peer));
    };
    for (uint32_t peer = 0; peer < size() && call != 0; peer++)
        if (peer != rank()) QCCL_TRY(await_rank(peer, [&] { return is_known(peer); }));
    if (const auto failure = this->failure()) return report_failure(*failure);
    return {};
}

// Waits until no rank needs the descriptor that this call's descriptor will overwrite.
Done SharedTransport::await_call_slot(uint64_t call) {
    begun_by_all_ = call - 1;
    for (uint32_t peer = 0; peer < size(); peer++) {
        if (peer == rank()) continue;
        QCCL_TRY(
            await_rank(peer, [&] { return history_.begun(peer) + history_.calls_kept() > call; }));
        begun_by_all_ = std::min(begun_by_all_, history_.begun(peer));
    }
    return {};
}

Error SharedTransport::mismatch(uint64_t call) {
    publish_call();
    return report_failure(detector_.mismatch(call));
}

Error SharedTransport::mismatch_of_shrink(uint64_t call) {
    // A shrink has no call number of its own, since it also works where ranks have failed in
    // different calls. Here it takes the number of the call that the other rank makes instead.
    if (call > history_.current().call) {
        call = history_.current().call + 1;
        history_.begin(CallDescriptor{.collective = comm_shrink}, {.call = call});
        history_.publish();
    }
    return mismatch(call);
}

} // namespace qccl
