// Sends: the queue, its thread, and how messages enter it. link_receiver.cpp has the other
// direction.
#include "messages/peer_link.hpp"

#include "core/failure.hpp"

#include <algorithm>
#include <cstring>
#include <system_error>
#include <vector>

namespace qccl_torch {

namespace {

// Limits how long a rank that closes its link waits for the peer's answer, which comes at once from
// a process that runs. Without it the link ends with an abort.
constexpr Milliseconds patience_for_goodbye{2000};

} // namespace

PeerLink::~PeerLink() { close(Milliseconds{0}); }

void PeerLink::connect(Connect connect) {
    {
        const std::lock_guard lock(mutex_);
        if (is_connecting_ || failure_) return;
        try {
            sender_ = std::thread([this, connect = std::move(connect)] { run_sender(connect); });
            is_connecting_ = true;
            return;
        } catch (const std::system_error &) {}
    }
    fail(std::make_exception_ptr(
        CallFailure(qcclSystemError, "the system refuses a thread for messages with rank " +
                                         std::to_string(peer_))));
}

bool PeerLink::is_connecting() const {
    const std::lock_guard lock(mutex_);
    return is_connecting_ || failure_ != nullptr;
}

void PeerLink::send(const void *data, size_t bytes, int tag, Milliseconds limit, Completion done) {
    std::unique_lock lock(mutex_);
    if (failure_) {
        const std::exception_ptr failure = failure_;
        lock.unlock();
        return done(failure, -1);
    }
    Outgoing item{.frame = {.kind = FrameKind::eager, .tag = tag, .id = 0, .bytes = bytes}};
    const uint64_t price = credit_for(bytes);
    if (bytes > most_eager_bytes || price > credit_) {
        item.frame.kind = FrameKind::request;
        item.frame.id = ++last_request_;
        waiting_.emplace(item.frame.id, WaitingSend{data, bytes, std::move(done)});
    } else {
        credit_ -= price;
        if (!item.frame.is_inlined())
            item.payload = data;
        else if (bytes != 0)
            std::memcpy(item.frame.data.data(), data, bytes);
        item.done = std::move(done);
    }
    if (is_connected_ && outgoing_.empty() && !is_sending_ && !item.payload) {
        item.limit = limit;
        return send_at_once(item, lock);
    }
    outgoing_.push_back(std::move(item));
    has_changed_.notify_all();
}

// Saves a small message the way through the queue. The peer's receiving thread takes it in any
// case, so this does not wait for the peer's program.
void PeerLink::send_at_once(const Outgoing &item, std::unique_lock<std::mutex> &lock) {
    is_sending_ = true;
    lock.unlock();
    std::exception_ptr failure;
    try {
        transmit(item);
    } catch (const std::exception &error) {
        failure = explain(error);
    }
    lock.lock();
    is_sending_ = false;
    has_changed_.notify_all();
    lock.unlock();
    if (item.done) item.done(failure, -1);
    if (failure) fail(failure);
}

void PeerLink::queue(Outgoing item) {
    const std::lock_guard lock(mutex_);
    if (failure_) return; // the receives that the item serves have failed
    outgoing_.push_back(std::move(item));
    has_changed_.notify_all();
}

// Small credits travel together, so that they cost few frames.
void PeerLink::give_credit(uint64_t bytes) {
    const std::lock_guard lock(mutex_);
    owed_credit_ += bytes;
    if (owed_credit_ < eager_credit / 4 || failure_) return;
    outgoing_.push_back({.frame = {.kind = FrameKind::credit, .bytes = owed_credit_}});
    owed_credit_ = 0;
    has_changed_.notify_all();
}

// With the lock held.
void PeerLink::queue_goodbye() {
    if (has_queued_goodbye_) return;
    has_queued_goodbye_ = true;
    outgoing_.push_back({.frame = {.kind = FrameKind::goodbye}});
    has_changed_.notify_all();
}

void PeerLink::run_sender(const Connect &connect) {
    try {
        Channels made = connect(is_given_up_);
        {
            const std::lock_guard lock(mutex_);
            channels_ = std::move(made);
            if (is_given_up_) throw CallFailure(qcclRevoked, "the link has been aborted");
            receiver_ = std::thread([this] { run_receiver(); });
            is_connected_ = true;
        }
        send_queued();
    } catch (const std::exception &error) {
        fail(explain(error));
    }
    const std::lock_guard lock(mutex_);
    has_sent_goodbye_ = true; // or never will
    has_changed_.notify_all();
}

void PeerLink::send_queued() {
    for (bool is_last = false; !is_last;) {
        std::unique_lock lock(mutex_);
        has_changed_.wait(lock,
                          [this] { return !is_sending_ && (!outgoing_.empty() || is_given_up_); });
        if (outgoing_.empty()) return;
        const Outgoing item = std::move(outgoing_.front());
        outgoing_.pop_front();
        is_last = item.frame.kind == FrameKind::goodbye;
        send_at_once(item, lock);
    }
}

void PeerLink::transmit(const Outgoing &item) {
    qcclCollConfig_t config = QCCL_COLL_CONFIG_INIT;
    // The program's own timeout ends a send of the link's thread that takes too long. A send of the
    // program's thread has to end by itself.
    config.timeout = item.limit ? std::chrono::duration<double>(*item.limit).count() : -1;
    const int peer = 1 - channels_.own_rank;
    const auto send_bytes = [&](const void *data, size_t bytes) {
        check(qcclSendConfig(data, bytes, qcclUint8, peer, channels_.outgoing->handle(), nullptr,
                             &config));
    };
    send_bytes(&item.frame, sizeof item.frame);
    if (item.payload) send_bytes(item.payload, item.frame.bytes);
}

// Ends sends only: messages of the peer that have arrived can still be received.
void PeerLink::stop_sending(std::exception_ptr reason) {
    std::deque<Outgoing> outgoing;
    std::map<uint64_t, WaitingSend> waiting;
    {
        const std::lock_guard lock(mutex_);
        if (!failure_) failure_ = reason;
        outgoing.swap(outgoing_);
        waiting.swap(waiting_);
        // The peer waits for the goodbye also if it has said its own.
        if (!outgoing.empty() && outgoing.back().frame.kind == FrameKind::goodbye) {
            outgoing_.push_back(std::move(outgoing.back()));
            outgoing.pop_back();
        }
        has_changed_.notify_all();
    }
    for (const Outgoing &item : outgoing)
        if (item.done) item.done(reason, -1);
    for (const auto &[number, send] : waiting) send.done(reason, -1);
}

void PeerLink::fail(std::exception_ptr reason) {
    stop_sending(reason);
    std::map<uint64_t, PostedReceive> granted;
    {
        const std::lock_guard lock(mutex_);
        granted.swap(granted_);
    }
    for (const auto &[number, receive] : granted) receive.done(reason, -1);
    for (const PostedReceive &receive : board_.lose(peer_, reason)) receive.done(reason, -1);
}

std::exception_ptr PeerLink::explain(const std::exception &error) const {
    const auto *const failure = dynamic_cast<const CallFailure *>(&error);
    const bool is_of_system = dynamic_cast<const std::system_error *>(&error) != nullptr;
    const qcclResult_t other = is_of_system ? qcclSystemError : qcclRemoteError;
    return std::make_exception_ptr(CallFailure(
        failure ? failure->code() : other,
        "messages with rank " + std::to_string(peer_) +
            " have failed (the two ranks have a communicator of their own): " + error.what()));
}

void PeerLink::start_closing() {
    const std::lock_guard lock(mutex_);
    if (is_connected_ && !has_sent_goodbye_) queue_goodbye();
}

void PeerLink::close(Milliseconds patience) {
    start_closing();
    {
        std::unique_lock lock(mutex_);
        if (has_queued_goodbye_) {
            has_changed_.wait_for(lock, patience,
                                  [this] { return has_sent_goodbye_ || is_given_up_; });
            has_changed_.wait_for(lock, std::min(patience, patience_for_goodbye),
                                  [this] { return has_stopped_receiving_ || is_given_up_; });
        }
    }
    end_threads();
    fail(std::make_exception_ptr(
        CallFailure(qcclRevoked, "the process group was shut down before the message was sent")));
    if (channels_.outgoing) channels_.outgoing->end(patience);
    if (channels_.incoming) channels_.incoming->end(patience);
    const std::lock_guard lock(mutex_);
    channels_ = {};
}

void PeerLink::end_threads() {
    {
        const std::lock_guard lock(mutex_);
        is_given_up_ = true;
        if (is_connected_ && !has_sent_goodbye_) channels_.outgoing->abort();
        has_changed_.notify_all();
    }
    if (sender_.joinable()) sender_.join(); // from here on channels_ does not change
    {
        std::unique_lock lock(mutex_);
        has_changed_.wait(lock, [this] { return !is_sending_; });
        if (receiver_.joinable() && !has_stopped_receiving_) channels_.incoming->abort();
    }
    if (receiver_.joinable()) receiver_.join();
}

void PeerLink::abort() {
    const std::lock_guard lock(mutex_);
    is_given_up_ = true;
    for (const auto *const channel : {&channels_.outgoing, &channels_.incoming})
        if (*channel) (*channel)->abort();
    has_changed_.notify_all();
}

} // namespace qccl_torch
