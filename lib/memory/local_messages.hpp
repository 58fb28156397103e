// How messages pass by reference between two ranks of one host: mailboxes carry the descriptors of
// messages, and windows hold bytes that a descriptor may refer to. Used by SharedTransport on the
// thread that runs the rank's calls; does not block.
//
// A mailbox holds the descriptors from one rank to one other rank: a ring with one writer and one
// reader, which lies in the writer's segment. The reader also keeps a queue of messages that came
// before they were asked for.
//
// A window is memory of a rank's own that the rank exposes to its peers. Windows also holds the
// peers' windows that this rank has mapped. If a peer cannot map a window, the owner gives no
// references to it.
#pragma once

#include "memory/peer_table.hpp"

#include <array>
#include <optional>
#include <span>
#include <vector>

namespace qccl {

// ---- Mailboxes

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

// ---- Windows

class Windows {
public:
    explicit Windows(const PeerTable &peer_table)
        : peer_table_(peer_table), views_(peer_table.size()) {}

    // Exposes memory of this rank, as often as the rank likes; as many calls of `withdraw` withdraw
    // it. Between calls. The other ranks map it at their next refresh; if one of them cannot,
    // no rank reads the memory in place. Withdrawn memory stays mapped until their next refresh.
    // Returns false if more regions are exposed than there are windows: a region without a window
    // is not read in place.
    bool expose(const ExportedRegion &memory);
    void withdraw(const std::byte *base);
    // Sets the device memory that every rank has exposed to all others, by rank, as this rank
    // addresses it; zero-copy references may lie in it from then on. Called once, before the first
    // call, if all ranks are on one host. The memory is not read here.
    void use_device_memory(std::vector<std::span<std::byte>> by_rank) {
        device_memory_ = std::move(by_rank);
    }

    // Maps what peers have exposed since the last refresh, and unmaps what they have withdrawn.
    // Costs one load for each rank that has changed nothing. Between calls.
    void refresh();

    // Returns a reference to these bytes of this rank; an empty one if they do not lie in one
    // window that all peers have mapped. A rank that is alone on its host gets references to any
    // memory: the network reads all of this process.
    ZeroCopyRef refer_to(const void *memory, size_t bytes) const;
    // Returns what lies `offset` bytes into a window of `owner`, which may be this rank; an empty
    // reference if there is nothing.
    ZeroCopyRef find(uint32_t owner, uint32_t number, uint64_t offset) const;
    // How far into the owner's window the referenced bytes lie.
    uint64_t offset(uint32_t owner, const ZeroCopyRef &zero_copy) const;

private:
    static constexpr uint32_t no_window = ~uint32_t{0};

    struct Exposed {
        ExportedRegion memory;
        uint32_t times = 1;
        uint32_t window = no_window;
        bool is_waiting = true; // for a free window
    };
    // This rank's view of one window of a peer.
    struct View {
        uint64_t offer = 0; // the latest that has been handled
        Mapping mapping;    // empty if it could not be mapped
    };
    struct PeerViews {
        uint64_t offers = 0; // as of the last look
        std::array<View, windows_kept> windows;
    };

    std::vector<Exposed>::iterator find_exposed(const std::byte *base);
    bool offer(Exposed &exposed);
    std::optional<uint32_t> find_free() const;
    void withdraw_offer(uint32_t window);
    void announce() const;
    void refresh_window(uint32_t peer, uint32_t number, View &view) const;
    // The window as this rank sees it; empty if it does not.
    std::span<const std::byte> memory(uint32_t owner, uint32_t number) const;

    const PeerTable &peer_table_;
    std::vector<Exposed> exposed_;
    std::vector<PeerViews> views_;                    // by rank
    uint64_t offers_ = 0;                             // offers made so far
    std::vector<std::span<std::byte>> device_memory_; // by rank; empty: there is none
};

} // namespace qccl
