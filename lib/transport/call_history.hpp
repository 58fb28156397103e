// The latest calls of every rank, as published: who is in which call, and where ranks disagree.
// Knows no waiting.
#pragma once

#include "transport/party.hpp"

namespace qccl {

class CallHistory {
public:
    explicit CallHistory(const Party &party) : party_(party) {}

    // Of this rank. The caller has seen to it that no rank still needs the call `calls_kept`
    // before.
    void publish(const CallDescriptor &call);

    // Of a far rank, as it has told. A call that has been forgotten since stays so.
    void record(uint32_t rank, const CallDescriptor &call);

    // Of this rank's latest call; its number is 0 before the first.
    const CallDescriptor &current() const { return current_; }
    uint64_t hash() const { return hash_; }

    uint64_t begun(uint32_t rank) const {
        return party_.segments[rank].presence().begun.load(std::memory_order_acquire);
    }
    // Nothing if the rank has not begun that call, or has since begun `calls_kept` more.
    std::optional<CallDescriptor> find(uint32_t rank, uint64_t call) const;
    // Whether the rank is or was in this rank's current call with another hash.
    bool disagrees(uint32_t rank) const;
    // Where the calls of that number differ, in the same words on every rank: the lowest rank that
    // differs from the lowest that has published the call.
    std::optional<Error> difference(uint64_t call) const;

private:
    static void write(PublishedCall &slot, const CallDescriptor &call, uint64_t hash);

    const Party &party_;
    CallDescriptor current_;
    uint64_t hash_ = 0;
};

} // namespace qccl
