// Messages from one rank to one other: a ring with one writer and one reader, in the writer's
// segment, and the reader's shelf for what came before it was wanted. Knows no calls.
#pragma once

#include "transport/party.hpp"

#include <vector>

namespace qccl {

// The writer's end.
class Outbound {
public:
    Outbound(const Party &party, uint32_t peer) : party_(party), peer_(peer) {}

    // The mail to fill in and then `post`; null: there is no room.
    Mail *next();
    void post();

private:
    const Party &party_;
    uint32_t peer_;
    uint64_t posted_ = 0;
    uint64_t taken_ = 0; // as of the last look
};

// The reader's end.
class Inbound {
public:
    Inbound(const Party &party, uint32_t peer) : party_(party), peer_(peer) {}

    // The oldest mail that has not been taken; null: none has come.
    const Mail *peek() const {
        const Mail &mail = party_.segments[peer_].mail(party_.rank, taken_);
        return mail.stamp.load(std::memory_order_acquire) == taken_ + 1 ? &mail : nullptr;
    }
    void take();

    void shelve(MessageTag tag, const Wire &wire) { shelf_.push_back({tag, wire}); }
    std::optional<Wire> unshelve(MessageTag tag);
    // What nobody asked for.
    std::optional<Wire> unshelve_any();

private:
    struct Early {
        MessageTag tag;
        Wire wire;
    };

    const Party &party_;
    uint32_t peer_;
    uint64_t taken_ = 0;
    std::vector<Early> shelf_;
};

} // namespace qccl
