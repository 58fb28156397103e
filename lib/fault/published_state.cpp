// Publishes and reads call descriptors; each place for a descriptor is a sequence lock with one
// writer. Records and reads the shared failure: a record is complete before it is published, so a
// rank that dies while it records an error leaves either no error or a whole one.
#include "fault/published_state.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

namespace qccl {

// ---- Latest calls

std::optional<uint64_t> EndedCalls::difference(const EndedCalls &a, const EndedCalls &b) {
    const auto differs = [&](uint64_t call) {
        return a.has(call) && b.has(call) && a.hash(call) != b.hash(call);
    };
    uint64_t call = std::min(a.latest, b.latest);
    if (!differs(call)) return std::nullopt;
    while (differs(call - 1)) call--;
    return call;
}

void CallHistory::record(uint32_t rank, const CallDescriptor &call) {
    PublishedCall &slot = peer_table_.segments[rank].call(call.call);
    if (slot.call.load(std::memory_order_relaxed) >= call.call) return;
    write(slot, call, call.hash(), all_words);
}

std::optional<CallDescriptor> CallHistory::find(uint32_t rank, uint64_t call) const {
    const PublishedCall &slot = peer_table_.segments[rank].call(call);
    if (slot.call.load(std::memory_order_acquire) != call) return std::nullopt;
    PublishedCall::Words words;
    for (size_t i = 0; i < words.size(); i++)
        words[i] = slot.words[i].load(std::memory_order_acquire);
    if (slot.call.load(std::memory_order_relaxed) != call) return std::nullopt;
    return std::bit_cast<CallDescriptor>(words);
}

std::optional<uint64_t> CallHistory::disagreement(uint32_t rank) const {
    const uint64_t common = std::min(begun(rank), current_.call);
    if (common == 0) return std::nullopt;
    const PublishedCall &theirs = peer_table_.segments[rank].call(common);
    const PublishedCall &ours = peer_table_.mine().call(common);
    if (theirs.call.load(std::memory_order_acquire) != common ||
        ours.call.load(std::memory_order_relaxed) != common)
        return std::nullopt;
    const uint64_t hash = theirs.hash.load(std::memory_order_acquire);
    const bool is_whole = theirs.call.load(std::memory_order_relaxed) == common;
    if (!is_whole || hash == ours.hash.load(std::memory_order_relaxed)) return std::nullopt;
    return common;
}

std::optional<CallHistory::Pair> CallHistory::find_difference(uint64_t call) const {
    std::optional<Pair> pair;
    for (uint32_t rank = 0; rank < peer_table_.size(); rank++) {
        const auto theirs = find(rank, call);
        if (!theirs) continue;
        if (!pair) pair = {.reference = rank, .rank = rank, .ours = *theirs, .theirs = *theirs};
        if (theirs->hash() == pair->ours.hash()) continue;
        pair->rank = rank;
        pair->theirs = *theirs;
        return pair;
    }
    return std::nullopt;
}

std::optional<Error> CallHistory::difference(uint64_t call, const MessageEnds *ends) const {
    const auto pair = find_difference(call);
    if (!pair) return std::nullopt;
    return pair->ours.difference(pair->reference, pair->theirs, pair->rank, ends);
}

bool CallHistory::differs_before(uint64_t call) const {
    const auto pair = find_difference(call);
    return pair && pair->ours.earlier != pair->theirs.earlier;
}

uint64_t CallHistory::oldest_kept() const {
    uint64_t latest = 0;
    for (uint32_t rank = 0; rank < peer_table_.size(); rank++)
        latest = std::max(latest, begun(rank));
    return latest < calls_kept() ? 1 : latest - calls_kept() + 1;
}

// ---- The failure

static bool is_failure(Code code) {
    switch (code) {
#define QCCL_CODE(number, name, text) case Code::name:
        QCCL_RESULTS(QCCL_CODE)
#undef QCCL_CODE
        return code != Code::success && code != Code::in_progress;
    }
    return false;
}

Error sanitize_remote(Error told, uint32_t from, uint32_t size) {
    const bool is_whole = std::memchr(told.text, '\0', sizeof told.text) != nullptr;
    const bool names_a_rank =
        told.rank == Error::no_rank || (told.rank >= 0 && static_cast<uint32_t>(told.rank) < size);
    if (!is_whole || !names_a_rank || !is_failure(told.code))
        return Error::make(Code::remote_error,
                           "rank %u says that the communicator has failed, but not why", from)
            .at_rank(from);
    return told.make_printable();
}

std::optional<Error> SharedError::failure() const {
    const uint32_t recorded_by = line_.recorded_by.load(std::memory_order_acquire);
    if (recorded_by == 0) return std::nullopt;
    // A rank that knows of the failure returns from its call, and its caller may then write where
    // peers still read. The fence makes a peer that sees those writes see the failure, too.
    std::atomic_thread_fence(std::memory_order_seq_cst);
    if (recorded_by > peer_table_.size())
        return Error::make(Code::internal_error, "the shared failure record is damaged");
    Error error = peer_table_.segments[recorded_by - 1].failure().error;
    return error.make_printable();
}

Error SharedError::set_once(const Error &error) {
    const std::lock_guard guard(one_writer_);
    if (!is_set()) {
        peer_table_.mine().failure().error = error;
        uint32_t unset = 0;
        line_.recorded_by.compare_exchange_strong(
            unset, peer_table_.rank + 1, std::memory_order_acq_rel, std::memory_order_acquire);
        peer_table_.wake_all();
    }
    return *failure();
}

} // namespace qccl
