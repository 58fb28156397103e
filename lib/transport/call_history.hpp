// The latest calls of every rank, as published: who is in which call, and where ranks disagree.
// Knows no waiting.
#pragma once

#include "transport/party.hpp"

namespace qccl {

// What a rank tells of the calls that it has returned from in good order, of which no descriptor
// need be left when the communicator fails.
struct EndedCalls {
    // A rank that has ended a call is at most `calls_kept` ahead of one that has not.
    static constexpr uint32_t kept = calls_kept + 1;

    uint64_t latest = 0;
    std::array<uint64_t, kept> hashes{}; // of a call and of all before, by its number modulo `kept`

    bool has(uint64_t call) const { return call != 0 && call <= latest && call + kept > latest; }
    uint64_t hash(uint64_t call) const { return hashes[call % kept]; }
    // The first call that was not the same on both ranks, or the first that both tell of after it.
    static std::optional<uint64_t> difference(const EndedCalls &a, const EndedCalls &b);
};

class CallHistory {
public:
    explicit CallHistory(const Party &party) : party_(party) {}

    // This rank is in that call from now on, whose hash covers those before.
    void begin(const CallDescriptor &shape, const CallNumbers &numbers);
    // The others may know. The caller has seen to it that no rank still needs the call
    // `calls_kept` before.
    void publish();
    // That call has ended in good order.
    void end();

    // Of a far rank, as it has told. A call that has been forgotten since stays so.
    void record(uint32_t rank, const CallDescriptor &call);

    // Of this rank's latest call; its number is 0 before the first.
    const CallDescriptor &current() const { return current_; }
    // Of that call and of all before it.
    uint64_t hash() const { return hash_; }
    const EndedCalls &ended() const { return ended_; }

    uint64_t begun(uint32_t rank) const {
        return party_.segments[rank].presence().begun.load(std::memory_order_acquire);
    }
    // Nothing if the rank has not begun that call, or has since begun `calls_kept` more.
    std::optional<CallDescriptor> find(uint32_t rank, uint64_t call) const;
    // The latest call that both this rank and the other have begun, if that one or one before it
    // was not the same call on both.
    std::optional<uint64_t> disagreement(uint32_t rank) const;
    // Where the calls of that number differ, in the same words on every rank: the lowest rank that
    // differs from the lowest that has published the call.
    std::optional<Error> difference(uint64_t call) const;
    // Whether the two ranks that `difference` compares have parted before that call.
    bool differs_before(uint64_t call) const;
    // The earliest call whose descriptor every rank still has.
    uint64_t oldest_kept() const;

private:
    struct Pair {
        uint32_t reference = 0, rank = 0;
        CallDescriptor ours, theirs;
    };
    std::optional<Pair> find_difference(uint64_t call) const;
    static void write(PublishedCall &slot, const CallDescriptor &call, uint64_t hash);

    const Party &party_;
    CallDescriptor current_;
    uint64_t hash_ = 0;
    EndedCalls ended_;
};

} // namespace qccl
