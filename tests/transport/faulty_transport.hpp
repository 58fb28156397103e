// A transport that forwards all operations and injects faults into one rank: an error in the n-th
// operation, damaged, lost or delayed messages. Used by tests of the engine.
#pragma once

#include "transport/transport.hpp"

#include <functional>
#include <memory>
#include <vector>

namespace qtest {

using namespace qccl;

// The faults of a rank. An empty function does nothing.
struct Faults {
    // Called before each operation that may fail; an error is returned in place of the operation.
    std::function<Done(const char *operation)> before{};
    // Called with a copy of each message or eager slot received.
    std::function<void(std::vector<std::byte> &bytes)> damage{};
    // Called after a message has been sent or an eager slot posted.
    std::function<void(size_t bytes)> sent{};
    // `loses` returns whether a received message is dropped, `holds` whether it stays invisible for
    // now.
    std::function<bool(uint32_t peer, MessageTag tag)> loses{}, holds{};
    // Returns whether the peer has no buffer for a message for now.
    std::function<bool(uint32_t peer)> is_full{};
    // Returns whether messages of the call have not left for other hosts yet.
    std::function<bool()> keeps_messages{};
};

class FaultyTransport final : public Transport {
public:
    FaultyTransport(std::unique_ptr<Transport> inner, Faults faults)
        : Transport(inner->traits()), inner_(std::move(inner)), faults_(std::move(faults)) {}

    const char *name() const override { return inner_->name(); }

    Done begin(const CallShape &shape, const CallNumbers &numbers, std::chrono::nanoseconds timeout,
               Publishes when) override {
        QCCL_TRY(before("begin"));
        return inner_->begin(shape, numbers, timeout, when);
    }
    Done await_all() override {
        QCCL_TRY(before("meet"));
        return inner_->await_all();
    }
    Result<bool> have_all_begun() override {
        QCCL_TRY(before("meet"));
        return inner_->have_all_begun();
    }
    uint64_t calls_hash() const override { return inner_->calls_hash(); }
    Done confirm_calls(std::chrono::nanoseconds timeout) override {
        return inner_->confirm_calls(timeout);
    }
    bool is_free(uint32_t slot) const override { return inner_->is_free(slot); }

    Result<std::span<std::byte>> overflow(size_t bytes) override {
        QCCL_TRY(before("overflow"));
        return inner_->overflow(bytes);
    }

    Result<bool> send(uint32_t peer, MessageTag tag, const MessageView &view, Sends when) override {
        if (faults_.is_full && faults_.is_full(peer)) return false;
        QCCL_TRY(before("send"));
        QCCL_TRY(const bool is_sent, inner_->send(peer, tag, view, when));
        if (is_sent && faults_.sent) faults_.sent(view.bytes);
        return is_sent;
    }
    Result<std::optional<MessageView>> receive(uint32_t peer, MessageTag tag,
                                               const RecvBuffer &buffer) override {
        if (faults_.holds && faults_.holds(peer, tag)) return std::optional<MessageView>();
        QCCL_TRY(auto view, inner_->receive(peer, tag, buffer));
        if (!view) return view;
        QCCL_TRY(before("receive"));
        if (faults_.loses && faults_.loses(peer, tag)) {
            inner_->release(*view);
            return std::optional<MessageView>();
        }
        const auto bytes = damaged({view->data, view->bytes});
        view->data = bytes.data();
        view->bytes = bytes.size();
        return view;
    }
    void release(const MessageView &view) override { inner_->release(view); }

    Done end() override { return inner_->end(); }
    Done await_ended(uint64_t call) override { return inner_->await_ended(call); }
    Windows &windows() override { return inner_->windows(); }
    void keep_overflow(std::function<Done(const MappedMemory &)> on_open) override {
        inner_->keep_overflow(std::move(on_open));
    }

    Result<std::byte *> eager_slot(size_t bytes) override {
        QCCL_TRY(before("eager_slot"));
        return inner_->eager_slot(bytes);
    }
    void post_eager(size_t bytes) override {
        inner_->post_eager(bytes);
        if (faults_.sent) faults_.sent(bytes);
    }
    bool can_begin_next() const override { return inner_->can_begin_next(); }
    bool is_eager_slot_free(size_t bytes) const override {
        return inner_->is_eager_slot_free(bytes);
    }
    Done await_latest_exchange() override { return inner_->await_latest_exchange(); }
    bool has_next_eager(uint32_t peer) const override { return inner_->has_next_eager(peer); }
    Result<std::span<const std::byte>> await_eager(uint32_t peer) override {
        QCCL_TRY(before("await_eager"));
        QCCL_TRY(const auto bytes, inner_->await_eager(peer));
        return damaged(bytes);
    }

    Done wait(const Wait &what) override { return inner_->wait(what); }
    void progress() override { inner_->progress(); }
    void wait_done() override { inner_->wait_done(); }
    void fail(const Error &error) override { inner_->fail(error); }
    bool has_failed() const override { return inner_->has_failed(); }
    std::optional<Error> failure() const override { return inner_->failure(); }
    SurvivorExchange &survivor_exchange() override { return inner_->survivor_exchange(); }
    void message_waits(const MessageWait &wait, int64_t since_ns, int64_t now_ns) override {
        inner_->message_waits(wait, since_ns, now_ns);
    }
    void message_wait_done() override { inner_->message_wait_done(); }
    std::vector<RankState> states(int64_t now_ns) const override { return inner_->states(now_ns); }
    bool can_end() override {
        return !(faults_.keeps_messages && faults_.keeps_messages()) && inner_->can_end();
    }
    void ignore_failure() override { inner_->ignore_failure(); }
    bool claim_log() override { return inner_->claim_log(); }
    void leave() override { inner_->leave(); }

private:
    Done before(const char *operation) {
        return faults_.before ? faults_.before(operation) : Done();
    }
    std::span<const std::byte> damaged(std::span<const std::byte> bytes) {
        if (!faults_.damage) return bytes;
        copies_.push_back(std::make_unique<std::vector<std::byte>>(bytes.begin(), bytes.end()));
        faults_.damage(*copies_.back());
        return *copies_.back();
    }

    std::unique_ptr<Transport> inner_;
    const Faults faults_;
    std::vector<std::unique_ptr<std::vector<std::byte>>> copies_; // in use by the most recent views
};

// For clusters: wraps the transport of that rank only.
inline auto inject_at(uint32_t injected, const Faults &faults) {
    return [=](uint32_t rank, std::unique_ptr<Transport> transport) {
        return rank == injected ? std::make_unique<FaultyTransport>(std::move(transport), faults)
                                : std::move(transport);
    };
}

} // namespace qtest
