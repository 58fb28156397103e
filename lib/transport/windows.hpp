// Windows: memory of a rank's own that it exposes to its peers, and the peers' windows that this
// rank has mapped. If a peer cannot map a window, the window is just not lent. Used by
// SharedTransport on the thread that runs the rank's calls; does not block.
#pragma once

#include "transport/peer_table.hpp"

#include <array>
#include <optional>
#include <span>
#include <vector>

namespace qccl {

class Windows {
public:
    explicit Windows(const PeerTable &peer_table)
        : peer_table_(peer_table), views_(peer_table.size()) {}

    // Counted by base; the last `withdraw` withdraws the memory. Between calls. Returns false if
    // more is exposed than there are windows.
    bool expose(const ExportedRegion &memory);
    void withdraw(const std::byte *base);
    // By rank, as this rank reaches it; never read here.
    void use_device_memory(std::vector<std::span<std::byte>> by_rank) {
        device_memory_ = std::move(by_rank);
    }

    // Maps what peers have exposed since the last look, and unmaps what they have withdrawn.
    void refresh();

    // Returns a reference to these bytes; an empty one if some peer has not mapped the memory, or
    // if it is not exposed.
    ZeroCopyRef lend(const std::byte *data, size_t bytes) const;
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
    void unpublish(uint32_t window);
    void announce() const;
    void look_at(uint32_t peer, uint32_t number, View &view) const;
    // The window as this rank sees it; empty if it does not.
    std::span<const std::byte> memory(uint32_t owner, uint32_t number) const;

    const PeerTable &peer_table_;
    std::vector<Exposed> exposed_;
    std::vector<PeerViews> views_;                    // by rank
    uint64_t offers_ = 0;                             // offers made so far
    std::vector<std::span<std::byte>> device_memory_; // by rank; empty: there is none
};

} // namespace qccl
