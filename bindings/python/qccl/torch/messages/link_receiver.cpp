// Receives: the thread that takes frames from the peer, and what it does with each kind.
#include "core/failure.hpp"
#include "messages/peer_link.hpp"

#include <cstring>
#include <vector>

namespace qccl_torch {

void PeerLink::run_receiver() {
    try {
        MessageFrame frame;
        do receive_bytes(&frame, sizeof frame);
        while (take_frame(frame));
        const auto left = std::make_exception_ptr(CallFailure(
            qcclPeerLost, "rank " + std::to_string(peer_) + " has left the process group"));
        fail(left);
        // The peer waits for the answer before it ends the communicators.
        const std::lock_guard lock(mutex_);
        queue_goodbye();
    } catch (const std::exception &error) {
        if (!is_given_up_) fail(explain(error));
    }
    const std::lock_guard lock(mutex_);
    has_stopped_receiving_ = true;
    has_changed_.notify_all();
}

void PeerLink::receive_bytes(void *buffer, size_t bytes) {
    qcclCollConfig_t config = QCCL_COLL_CONFIG_INIT;
    config.timeout = -1; // the peer may have nothing to say for hours
    check(qcclRecvConfig(buffer, bytes, qcclUint8, 1 - channels_.own_rank,
                         channels_.incoming->handle(), nullptr, &config));
}

bool PeerLink::take_frame(const MessageFrame &frame) {
    switch (frame.kind) {
    case FrameKind::eager: take_eager(frame); return true;
    case FrameKind::request: take_request(frame); return true;
    case FrameKind::grant: take_grant(frame.id); return true;
    case FrameKind::refusal: take_refusal(frame); return true;
    case FrameKind::payload: take_payload(frame.id); return true;
    case FrameKind::credit: {
        const std::lock_guard lock(mutex_);
        credit_ += frame.bytes;
        return true;
    }
    case FrameKind::goodbye: return false;
    }
    throw CallFailure(qcclDamagedData, "a frame has the unknown kind " +
                                           std::to_string(static_cast<uint32_t>(frame.kind)));
}

void PeerLink::take_eager(const MessageFrame &frame) {
    std::optional<PostedReceive> receive = board_.take(peer_, frame.tag);
    // The usual case writes into the program's tensor at once.
    if (receive && receive->bytes == frame.bytes && !frame.is_inlined()) {
        receive_in_place(*receive);
        give_credit(credit_for(frame.bytes));
        return receive->done(nullptr, peer_);
    }
    receive_aside(frame, std::move(receive));
}

// A receive that has left the board is this thread's to complete, also if its data do not come.
void PeerLink::receive_in_place(PostedReceive &receive) {
    try {
        receive_bytes(receive.buffer, receive.bytes);
    } catch (const std::exception &error) {
        receive.done(explain(error), -1);
        throw;
    }
}

void PeerLink::receive_aside(const MessageFrame &frame, std::optional<PostedReceive> receive) {
    UnexpectedMessage message{.source = peer_, .tag = frame.tag, .bytes = frame.bytes};
    try {
        message.data.resize(frame.bytes);
        if (frame.is_inlined())
            std::memcpy(message.data.data(), frame.data.data(), frame.bytes);
        else
            receive_bytes(message.data.data(), frame.bytes);
    } catch (const std::exception &error) {
        if (receive) receive->done(explain(error), -1);
        throw;
    }
    // The program may have posted the receive meanwhile.
    if (!receive) receive = board_.take_or_keep(message);
    if (receive) finish_eager(*receive, message.data.data(), frame.bytes);
}

void PeerLink::finish_eager(PostedReceive &receive, const std::byte *data, size_t bytes) {
    give_credit(credit_for(bytes));
    if (receive.bytes != bytes) return receive.done(size_error(bytes, receive.bytes), peer_);
    if (bytes != 0) std::memcpy(receive.buffer, data, bytes);
    receive.done(nullptr, peer_);
}

void PeerLink::take_request(const MessageFrame &frame) {
    UnexpectedMessage message{
        .source = peer_, .tag = frame.tag, .bytes = frame.bytes, .request = frame.id};
    if (auto receive = board_.take_or_keep(message))
        answer_request(frame.id, frame.bytes, std::move(*receive));
}

void PeerLink::answer_request(uint64_t request, size_t bytes, PostedReceive receive) {
    if (receive.bytes != bytes) {
        queue({.frame = {.kind = FrameKind::refusal, .id = request, .bytes = receive.bytes}});
        return receive.done(size_error(bytes, receive.bytes), peer_);
    }
    std::unique_lock lock(mutex_);
    if (failure_) {
        const std::exception_ptr failure = failure_;
        lock.unlock();
        return receive.done(failure, -1);
    }
    granted_.emplace(request, std::move(receive));
    outgoing_.push_back({.frame = {.kind = FrameKind::grant, .id = request}});
    has_changed_.notify_all();
}

void PeerLink::deliver(UnexpectedMessage message, PostedReceive receive) {
    if (message.request)
        answer_request(*message.request, message.bytes, std::move(receive));
    else
        finish_eager(receive, message.data.data(), message.bytes);
}

void PeerLink::take_grant(uint64_t request) {
    const std::lock_guard lock(mutex_);
    const auto found = waiting_.find(request);
    if (found == waiting_.end()) return; // it has failed
    WaitingSend &send = found->second;
    outgoing_.push_back({.frame = {.kind = FrameKind::payload, .id = request, .bytes = send.bytes},
                         .payload = send.data,
                         .done = std::move(send.done)});
    waiting_.erase(found);
    has_changed_.notify_all();
}

void PeerLink::take_refusal(const MessageFrame &frame) {
    WaitingSend send;
    {
        const std::lock_guard lock(mutex_);
        const auto found = waiting_.find(frame.id);
        if (found == waiting_.end()) return;
        send = std::move(found->second);
        waiting_.erase(found);
    }
    send.done(size_error(send.bytes, frame.bytes), -1);
}

void PeerLink::take_payload(uint64_t request) {
    PostedReceive receive;
    {
        const std::lock_guard lock(mutex_);
        const auto found = granted_.find(request);
        if (found == granted_.end())
            throw CallFailure(qcclDamagedData, "data came that this rank has not asked for");
        receive = std::move(found->second);
        granted_.erase(found);
    }
    receive_in_place(receive);
    receive.done(nullptr, peer_);
}

std::exception_ptr PeerLink::size_error(size_t sent, size_t expected) const {
    return std::make_exception_ptr(CallFailure(
        qcclMismatch, "a message with rank " + std::to_string(peer_) + " has " +
                          std::to_string(sent) + " bytes, but the receive has a tensor of " +
                          std::to_string(expected) + " bytes"));
}

} // namespace qccl_torch
