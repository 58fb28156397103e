// The control messages of RemoteEndpoint: a rank sends its status, status requests, the
// communicator's failure, warnings and its goodbye to ranks of other hosts. Any thread may call
// these functions. `flush_records`, `broadcast_error` and `leave` block for a bounded time until
// the messages have left; the others do not block.
#include "transport/remote_endpoint.hpp"

#include <algorithm>
#include <thread>

namespace qccl {

namespace {

using Clock = std::chrono::steady_clock;

// Up to this number of ranks, a rank sends a failure to all remote ranks. With more ranks it sends
// the failure to the ranks at distances that are powers of two, which forward it in turn.
constexpr uint32_t few = 16;

// A rank that has other work to do waits for its outgoing messages no longer than this.
constexpr auto longest_farewell = std::chrono::milliseconds(250);

} // namespace

template <class Condition>
void RemoteEndpoint::progress_until(const Condition &is_met, std::chrono::nanoseconds longest) {
    const auto deadline = Clock::now() + longest;
    while (!is_met() && Clock::now() < deadline)
        if (!progress()) std::this_thread::sleep_for(std::chrono::microseconds(50));
}

void RemoteEndpoint::broadcast_status() {
    const std::lock_guard guard(mutex_);
    MessageHeader status = header(MessageKind::status);
    status.call = latest_call();
    post_to_all(status);
    progress_locked();
}

MessageHeader RemoteEndpoint::status_request(uint64_t call) const {
    MessageHeader request = header(MessageKind::status_request);
    request.call = history_.find(peer_table_.rank, call).value_or(latest_call());
    request.about = call;
    return request;
}

void RemoteEndpoint::request_status_of_all(uint64_t call) {
    const std::lock_guard guard(mutex_);
    post_to_all(status_request(call));
    progress_locked();
}

void RemoteEndpoint::request_status(uint32_t peer, uint64_t call) {
    const std::lock_guard guard(mutex_);
    post(peer, status_request(call));
}

void RemoteEndpoint::flush_records() {
    const auto are_sent = [&] {
        const std::lock_guard guard(mutex_);
        return unsent_copies_.empty();
    };
    progress_until(are_sent, longest_farewell);
}

void RemoteEndpoint::broadcast_error(const Error &error) {
    {
        const std::lock_guard guard(mutex_);
        failure_ = error;
        const NetworkPart part{&failure_, sizeof failure_};
        for (const uint32_t peer : gossip_targets())
            post(peer, header(MessageKind::abort), std::span(&part, 1));
    }
    progress_until([&] { return unsent_ == 0; }, longest_farewell);
}

std::vector<uint32_t> RemoteEndpoint::gossip_targets() const {
    const uint32_t size = peer_table_.size();
    std::vector<uint32_t> ranks;
    for (uint32_t step = 1; step<size; step = size> few ? 2 * step : step + 1) {
        ranks.push_back((peer_table_.rank + step) % size);
        ranks.push_back((peer_table_.rank + size - step) % size);
    }
    std::sort(ranks.begin(), ranks.end());
    ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
    std::erase_if(ranks, [&](uint32_t rank) { return peer_table_.is_local(rank); });
    return ranks;
}

void RemoteEndpoint::broadcast_warning(uint64_t call) {
    const std::lock_guard guard(mutex_);
    MessageHeader warned = header(MessageKind::warned);
    warned.call = history_.current();
    warned.about = call;
    post_to_all(warned);
    progress_locked();
}

void RemoteEndpoint::leave() {
    {
        const std::lock_guard guard(mutex_);
        flush_locked(); // messages of an abandoned call
        MessageHeader left = header(MessageKind::goodbye);
        left.call = latest_call(); // peers do not miss this rank in a call that it has begun
        for (const uint32_t peer : peer_table_.remote_ranks)
            if (peer_states_[peer].is_known && !peer_states_[peer].is_lost) post(peer, left);
    }
    progress_until([&] { return is_done_by_all(); }, std::chrono::seconds(1));
}

// Returns whether each peer that may still need this rank's messages has consumed them, or the
// communicator has failed. A network that is closed earlier drops messages that it has accepted and
// not delivered.
bool RemoteEndpoint::is_done_by_all() {
    const std::lock_guard guard(mutex_);
    return unsent_ == 0 && (shared_error_.is_set() ||
                            std::all_of(peer_table_.remote_ranks.begin(),
                                        peer_table_.remote_ranks.end(), [&](uint32_t peer) {
                                            const PeerState &state = peer_states_[peer];
                                            return state.is_lost || has_left(peer) ||
                                                   state.acked_bytes == state.sent_bytes;
                                        }));
}

} // namespace qccl
