// A transport that passes everything on, and through which tests meddle with one rank: fail its
// n-th operation, damage, lose or hold back what comes.
#pragma once

#include "transport/transport.hpp"

#include <functional>
#include <memory>
#include <vector>

namespace qtest {

using namespace qccl;

// What a test does to a rank; whatever is empty does nothing.
struct Meddling {
    // Before each operation that may fail: an error takes its place.
    std::function<Done(const char *operation)> before{};
    // With each message or line that has come, as a copy.
    std::function<void(std::vector<std::byte> &bytes)> damage{};
    // After a message has been handed over, or a line published.
    std::function<void(size_t bytes)> sent{};
    // Whether a message that has come is never seen; whether it is not seen just now.
    std::function<bool(uint32_t peer, MessageTag tag)> loses{}, holds{};
    // Whether there is no room for a message just now.
    std::function<bool(uint32_t peer)> is_full{};
};

class Meddler final : public Transport {
public:
    Meddler(std::unique_ptr<Transport> inner, Meddling meddling)
        : inner_(std::move(inner)), meddling_(std::move(meddling)) {}

    const char *name() const override { return inner_->name(); }
    uint32_t rank() const override { return inner_->rank(); }
    uint32_t size() const override { return inner_->size(); }
    uint64_t session() const override { return inner_->session(); }
    double ranks_per_core() const override { return inner_->ranks_per_core(); }

    Done begin(const CallDescriptor &shape, const CallNumbers &numbers,
               std::chrono::nanoseconds timeout, Publishes when) override {
        QCCL_TRY(before("begin"));
        return inner_->begin(shape, numbers, timeout, when);
    }
    Done meet() override {
        QCCL_TRY(before("meet"));
        return inner_->meet();
    }
    uint64_t calls_hash() const override { return inner_->calls_hash(); }
    Done confirm_calls(std::chrono::nanoseconds timeout) override {
        return inner_->confirm_calls(timeout);
    }
    std::span<std::byte> outbox() override { return inner_->outbox(); }
    uint32_t slots() const override { return inner_->slots(); }
    std::span<std::byte> inbox() override { return inner_->inbox(); }
    bool is_free(uint32_t slot) const override { return inner_->is_free(slot); }

    Result<std::span<std::byte>> overflow(size_t bytes) override {
        QCCL_TRY(before("overflow"));
        return inner_->overflow(bytes);
    }

    Result<bool> send(uint32_t peer, MessageTag tag, const Wire &wire, Sends when) override {
        if (meddling_.is_full && meddling_.is_full(peer)) return false;
        QCCL_TRY(before("send"));
        QCCL_TRY(const bool is_sent, inner_->send(peer, tag, wire, when));
        if (is_sent && meddling_.sent) meddling_.sent(wire.bytes);
        return is_sent;
    }
    Result<std::optional<Wire>> receive(uint32_t peer, MessageTag tag, const Room &room) override {
        if (meddling_.holds && meddling_.holds(peer, tag)) return std::optional<Wire>();
        QCCL_TRY(auto wire, inner_->receive(peer, tag, room));
        if (!wire) return wire;
        QCCL_TRY(before("receive"));
        if (meddling_.loses && meddling_.loses(peer, tag)) {
            inner_->release(*wire);
            return std::optional<Wire>();
        }
        const auto bytes = damaged({wire->data, wire->bytes});
        wire->data = bytes.data();
        wire->bytes = bytes.size();
        return wire;
    }
    void release(const Wire &wire) override { inner_->release(wire); }

    Done end() override { return inner_->end(); }
    Done await_ended(uint64_t call) override { return inner_->await_ended(call); }
    bool show(const OwnMemory &memory) override { return inner_->show(memory); }
    void hide(const std::byte *base) override { inner_->hide(base); }
    void look_at_windows() override { inner_->look_at_windows(); }
    Loan lend(const void *data, size_t bytes) const override { return inner_->lend(data, bytes); }
    void use_device_memory(std::vector<std::span<std::byte>> by_rank) override {
        inner_->use_device_memory(std::move(by_rank));
    }
    std::vector<std::span<std::byte>> arenas() override { return inner_->arenas(); }
    void keep_overflow(std::function<Done(const MappedMemory &)> on_open) override {
        inner_->keep_overflow(std::move(on_open));
    }

    size_t line_bytes() const override { return inner_->line_bytes(); }
    Result<std::byte *> line() override {
        QCCL_TRY(before("line"));
        return inner_->line();
    }
    void publish(size_t bytes) override {
        inner_->publish(bytes);
        if (meddling_.sent) meddling_.sent(bytes);
    }
    Result<std::span<const std::byte>> await_line(uint32_t peer) override {
        QCCL_TRY(before("await_line"));
        QCCL_TRY(const auto bytes, inner_->await_line(peer));
        return damaged(bytes);
    }

    Done wait(const Wait &what) override { return inner_->wait(what); }
    void progress() override { inner_->progress(); }
    void came() override { inner_->came(); }
    void fail(const Error &error) override { inner_->fail(error); }
    std::optional<Error> failure() const override { return inner_->failure(); }
    Council &council() override { return inner_->council(); }
    void ignore_failure() override { inner_->ignore_failure(); }
    bool is_ours_to_tell() override { return inner_->is_ours_to_tell(); }
    void leave() override { inner_->leave(); }

private:
    Done before(const char *operation) {
        return meddling_.before ? meddling_.before(operation) : Done();
    }
    std::span<const std::byte> damaged(std::span<const std::byte> bytes) {
        if (!meddling_.damage) return bytes;
        copies_.push_back(std::make_unique<std::vector<std::byte>>(bytes.begin(), bytes.end()));
        meddling_.damage(*copies_.back());
        return *copies_.back();
    }

    std::unique_ptr<Transport> inner_;
    const Meddling meddling_;
    std::vector<std::unique_ptr<std::vector<std::byte>>> copies_; // views of them last
};

// For clusters: that rank's transport alone is meddled with.
inline auto meddle_at(uint32_t meddled, const Meddling &meddling) {
    return [=](uint32_t rank, std::unique_ptr<Transport> transport) {
        return rank == meddled ? std::make_unique<Meddler>(std::move(transport), meddling)
                               : std::move(transport);
    };
}

} // namespace qtest
