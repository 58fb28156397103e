// Windows: memory of its own that a rank shows to its peers, and what of theirs this rank has
// mapped. Whoever cannot map one only keeps it from being lent. Knows no messages and no calls.
#pragma once

#include "transport/party.hpp"

#include <array>
#include <optional>
#include <span>
#include <vector>

namespace qccl {

class Windows {
public:
    explicit Windows(const Party &party) : party_(party), views_(party.size()) {}

    // Counted by base; the last `hide` hides. Between calls. False: not all that is shown has room.
    bool show(const OwnMemory &memory);
    void hide(const std::byte *base);
    // By rank, as this rank reaches it; never read here.
    void use_device_memory(std::vector<std::span<std::byte>> by_rank) {
        device_memory_ = std::move(by_rank);
    }

    // Maps what peers have shown, and unmaps what they have hidden, since the last look.
    void look();

    // None where some peer has not mapped the memory, or it is not shown.
    Loan lend(const std::byte *data, size_t bytes) const;
    // What lies `offset` bytes into a peer's (or the own) window; none where that is nowhere.
    Loan find(uint32_t owner, uint32_t number, uint64_t offset) const;
    // How far into the owner's window a loan lies.
    uint64_t offset(uint32_t owner, const Loan &loan) const;

private:
    static constexpr uint32_t no_window = ~uint32_t{0};

    struct Shown {
        OwnMemory memory;
        uint32_t times = 1;
        uint32_t window = no_window;
        bool is_waiting = true; // the table had no room yet
    };
    // Of one window of a peer.
    struct View {
        uint64_t offer = 0; // the latest that has been dealt with
        Mapping mapping;    // nothing where it could not be mapped
    };
    struct PeerViews {
        uint64_t offers = 0; // as of the last look
        std::array<View, windows_kept> windows;
    };

    std::vector<Shown>::iterator find_shown(const std::byte *base);
    bool offer(Shown &shown);
    std::optional<uint32_t> find_free() const;
    void withdraw(uint32_t window);
    void announce() const;
    void look_at(uint32_t peer, uint32_t number, View &view) const;
    // As this rank sees it; empty: it does not.
    std::span<const std::byte> memory(uint32_t owner, uint32_t number) const;

    const Party &party_;
    std::vector<Shown> shown_;
    std::vector<PeerViews> views_;                    // by rank
    uint64_t offers_ = 0;                             // made so far
    std::vector<std::span<std::byte>> device_memory_; // by rank; empty: there is none
};

} // namespace qccl
