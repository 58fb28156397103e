// Publishing and reading call descriptors, each a sequence lock with one writer.
#include "transport/call_history.hpp"

#include <bit>

namespace qccl {

void CallHistory::publish(const CallDescriptor &call) {
    current_ = call;
    hash_ = call.hash();
    write(party_.mine().call(call.call), call, hash_);
    party_.mine().presence().begun.store(call.call, std::memory_order_release);
}

void CallHistory::record(uint32_t rank, const CallDescriptor &call) {
    PublishedCall &slot = party_.segments[rank].call(call.call);
    if (slot.call.load(std::memory_order_relaxed) >= call.call) return;
    write(slot, call, call.hash());
}

void CallHistory::write(PublishedCall &slot, const CallDescriptor &call, uint64_t hash) {
    // Release stores of the words keep this one before them, for whoever acquires one of them.
    slot.call.store(0, std::memory_order_relaxed);
    const auto words = std::bit_cast<PublishedCall::Words>(call);
    for (size_t i = 0; i < words.size(); i++)
        slot.words[i].store(words[i], std::memory_order_release);
    slot.hash.store(hash, std::memory_order_release);
    slot.call.store(call.call, std::memory_order_release);
}

std::optional<CallDescriptor> CallHistory::find(uint32_t rank, uint64_t call) const {
    const PublishedCall &slot = party_.segments[rank].call(call);
    if (slot.call.load(std::memory_order_acquire) != call) return std::nullopt;
    PublishedCall::Words words;
    for (size_t i = 0; i < words.size(); i++)
        words[i] = slot.words[i].load(std::memory_order_acquire);
    if (slot.call.load(std::memory_order_relaxed) != call) return std::nullopt;
    return std::bit_cast<CallDescriptor>(words);
}

bool CallHistory::disagrees(uint32_t rank) const {
    const PublishedCall &slot = party_.segments[rank].call(current_.call);
    if (slot.call.load(std::memory_order_acquire) != current_.call) return false;
    const uint64_t theirs = slot.hash.load(std::memory_order_acquire);
    return theirs != hash_ && slot.call.load(std::memory_order_relaxed) == current_.call;
}

std::optional<Error> CallHistory::difference(uint64_t call) const {
    std::optional<CallDescriptor> reference;
    uint32_t reference_rank = 0;
    for (uint32_t rank = 0; rank < party_.size(); rank++) {
        const auto theirs = find(rank, call);
        if (!theirs) continue;
        if (!reference)
            reference = theirs, reference_rank = rank;
        else if (auto error = reference->difference(reference_rank, *theirs, rank))
            return error;
    }
    return std::nullopt;
}

} // namespace qccl
