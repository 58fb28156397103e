// Message descriptors from one rank to one other rank of the same host: a ring with one writer and
// one reader, which lies in the writer's segment. The reader also keeps a queue of messages that
// came before they were asked for. Used by SharedTransport on the thread that runs the rank's
// calls; does not block.
#pragma once

#include "transport/peer_table.hpp"

#include <vector>

namespace qccl {

// The writer's end.
class Outbound {
public:
    Outbound(const PeerTable &peer_table, uint32_t peer) : peer_table_(peer_table), peer_(peer) {}

    // Returns the descriptor to fill in before `post`; null if the ring is full.
    Mail *next();
    // Makes the descriptor from `next` visible to the peer, and wakes the peer.
    void post();

private:
    const PeerTable &peer_table_;
    uint32_t peer_;
    uint64_t posted_ = 0;
    uint64_t taken_ = 0; // by the peer, as of the last look
};

// The reader's end.
class Inbound {
public:
    Inbound(const PeerTable &peer_table, uint32_t peer) : peer_table_(peer_table), peer_(peer) {}

    // Returns the oldest descriptor that has not been taken; null if none has come.
    const Mail *peek() const {
        const Mail &mail = peer_table_.segments[peer_].mail(peer_table_.rank, taken_);
        return mail.stamp.load(std::memory_order_acquire) == taken_ + 1 ? &mail : nullptr;
    }
    // Frees the oldest descriptor for the writer, and wakes the writer.
    void take();

    void queue_unexpected(MessageTag tag, const MessageView &view) {
        unexpected_.push_back({tag, view});
    }
    // Removes and returns the queued message with this tag, if there is one.
    std::optional<MessageView> take_unexpected(MessageTag tag);
    // Removes and returns any message that was never asked for.
    std::optional<MessageView> take_any_unexpected();

private:
    struct Early {
        MessageTag tag;
        MessageView view;
    };

    const PeerTable &peer_table_;
    uint32_t peer_;
    uint64_t taken_ = 0;
    std::vector<Early> unexpected_;
};

} // namespace qccl
