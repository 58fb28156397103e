// What the ranks of a communicator publish to each other in their segments: their latest calls, and
// the one failure. Used by all parts of the transport. Nothing waits for other ranks.
//
// A CallHistory writes the descriptors of this rank's latest calls, reads those of all ranks, and
// finds where they differ. SharedTransport, FailureDetector, SurvivorExchange and RemoteEndpoint
// use it. `begin`, `publish`, `end`, `current`, `hash`, `ended` and `disagreement` belong to the
// thread that makes this rank's calls; `find` may run on any thread.
//
// SharedError is the one failure of a communicator: the first error that any rank records holds for
// all ranks. Any thread may call it.
//
// RemoteRanks is what the detection of failures and the exchanges of survivors ask of the ranks of
// other hosts; the transport implements it (transport/remote_endpoint.hpp). Any thread may call.
// Only `flush_records` waits, for a second at most.
#pragma once

#include "memory/peer_table.hpp"

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>
#include <tuple>
#include <utility>

namespace qccl {

// ---- Latest calls

// The hashes of the latest calls that a rank has completed without error. Ranks compare them after
// the communicator has failed, when the descriptors of those calls may be overwritten.
struct EndedCalls {
    // A rank that has completed a call is at most `most_calls_kept` calls ahead of a rank that has
    // not.
    static constexpr uint32_t kept = most_calls_kept + 1;

    uint64_t latest = 0;
    std::array<uint64_t, kept> hashes{}; // each covers a call and all before; by call modulo `kept`

    bool has(uint64_t call) const { return call != 0 && call <= latest && call + kept > latest; }
    uint64_t hash(uint64_t call) const { return hashes[call % kept]; }
    // Returns the first call that differs between both ranks. If a rank has dropped the hash of
    // that call, returns the first later call of which both ranks have the hash. Nothing: no
    // difference is known.
    static std::optional<uint64_t> difference(const EndedCalls &a, const EndedCalls &b);
};

class CallHistory {
public:
    explicit CallHistory(const PeerTable &peer_table)
        : peer_table_(peer_table), calls_kept_(peer_table.mine().calls()) {}

    // Makes this rank's next call the current one, without publishing it. Its hash covers all
    // earlier calls.
    void begin(const CallShape &shape, const CallNumbers &numbers);
    // Publishes the current call to the other ranks. This overwrites the descriptor of the call
    // `calls_kept()` before it: the caller has made sure that no rank needs that one any more.
    void publish();
    // Marks the current call as completed without error.
    void end();

    // Stores the descriptor of a call that a remote rank has sent. Does nothing if its place
    // already holds this call or a later one.
    void record(uint32_t rank, const CallDescriptor &call);

    // Returns the descriptor of this rank's latest call; its number is 0 before the first.
    const CallDescriptor &current() const { return current_; }
    // Returns the fingerprint of its shape.
    uint64_t shape() const { return shape_; }
    // Returns the hash of the current call and of all calls before it.
    uint64_t hash() const { return hash_; }
    const EndedCalls &ended() const { return ended_; }

    // Returns how many calls a rank may be ahead of another one.
    uint64_t calls_kept() const { return calls_kept_; }
    // Returns the number of the rank's latest published call.
    uint64_t begun(uint32_t rank) const {
        return peer_table_.segments[rank].status().begun.load(std::memory_order_acquire);
    }
    // Returns the rank's descriptor of that call. Nothing: the rank has not begun the call, or has
    // since begun `calls_kept()` more.
    std::optional<CallDescriptor> find(uint32_t rank, uint64_t call) const;
    // Compares the hashes of the latest call that both this rank and `rank` have begun. Returns the
    // number of that call if the call or an earlier one differs between the two ranks. Nothing: no
    // difference is known.
    std::optional<uint64_t> disagreement(uint32_t rank) const;
    // Returns an error that says how the ranks' descriptors of that call differ, with the same text
    // on every rank: it compares the lowest rank that has published the call with the lowest rank
    // that differs from it. Nothing: the published descriptors are equal. `ends` as in
    // CallDescriptor::difference.
    std::optional<Error> difference(uint64_t call, const MessageEnds *ends = nullptr) const;
    // Returns whether the two ranks that `difference` compares have made different calls before
    // that call.
    bool differs_before(uint64_t call) const;
    // Returns the number of the earliest call whose descriptor no rank has overwritten.
    uint64_t oldest_kept() const;

private:
    struct Pair {
        uint32_t reference = 0, rank = 0;
        CallDescriptor ours, theirs;
    };
    std::optional<Pair> find_difference(uint64_t call) const;
    static constexpr auto all_words =
        std::make_index_sequence<std::tuple_size_v<PublishedCall::Words>>();
    // The words in which calls of one shape differ.
    static constexpr auto numbers_in_words =
        std::index_sequence<offsetof(CallDescriptor, call) / sizeof(uint64_t),
                            offsetof(CallDescriptor, tag) / sizeof(uint64_t),
                            offsetof(CallDescriptor, captured) / sizeof(uint64_t),
                            offsetof(CallDescriptor, earlier) / sizeof(uint64_t)>();
    // Stores these words of the call.
    template <size_t... words>
    static void write(PublishedCall &slot, const CallDescriptor &call, uint64_t hash,
                      std::index_sequence<words...>);

    const PeerTable &peer_table_;
    const uint64_t calls_kept_;
    CallDescriptor current_;
    uint64_t hash_ = 0;
    uint64_t shape_ = 0; // fingerprint of the current call's shape
    // Those of the calls in this rank's slots.
    std::array<uint64_t, most_calls_kept> published_shapes_{};
    EndedCalls ended_;
};

// These run in every call.

inline void CallHistory::begin(const CallShape &shape, const CallNumbers &numbers) {
    const CallNumbers own{numbers.call, numbers.tag, numbers.captured, hash_};
    hash_ = shape.hash(own);
    if (shape_ != shape.fingerprint()) {
        shape_ = shape.fingerprint();
        current_ = shape.descriptor();
    }
    current_.set(own);
}

inline void CallHistory::publish() {
    PublishedCall &slot = peer_table_.mine().call(current_.call);
    uint64_t &published = published_shapes_[current_.call & (calls_kept_ - 1)];
    if (published == shape_) {
        write(slot, current_, hash_, numbers_in_words);
    } else {
        write(slot, current_, hash_, all_words);
        published = shape_;
    }
    peer_table_.mine().status().begun.store(current_.call, std::memory_order_release);
}

inline void CallHistory::end() {
    ended_.latest = current_.call;
    ended_.hashes[current_.call % EndedCalls::kept] = hash_;
}

template <size_t... words>
void CallHistory::write(PublishedCall &slot, const CallDescriptor &call, uint64_t hash,
                        std::index_sequence<words...>) {
    // The words are stored with release order, so a reader that acquires a new word sees this 0,
    // too.
    slot.call.store(0, std::memory_order_relaxed);
    (slot.words[words].store(call.word_at(words), std::memory_order_release), ...);
    slot.hash.store(hash, std::memory_order_release);
    slot.call.store(call.call, std::memory_order_release);
}

// ---- The failure

// Checks a failure that rank `from` of another host has sent, in a communicator of `size` ranks.
// Returns the failure with unprintable characters replaced, or remote_error at rank `from` if the
// failure is malformed.
Error sanitize_remote(Error told, uint32_t from, uint32_t size);

class SharedError {
public:
    explicit SharedError(const PeerTable &peer_table)
        : peer_table_(peer_table), line_(peer_table.first().shared_error()) {}

    bool is_set() const { return line_.recorded_by.load(std::memory_order_acquire) != 0; }
    std::optional<Error> failure() const;
    // Records the error unless one is already set, and wakes all ranks of this host. Returns the
    // recorded error. Any thread.
    Error set_once(const Error &error);
    // Returns true to one rank of this host only, the one that reports the failure.
    bool claim_log() const { return line_.is_told.exchange(1, std::memory_order_relaxed) == 0; }

private:
    const PeerTable &peer_table_;
    SharedErrorLine &line_; // every call looks at it
    std::mutex one_writer_; // for this rank's record, which one thread at a time writes
};

// ---- Ranks of other hosts

class RemoteRanks {
public:
    // Handles what has arrived and what has been sent. Returns whether anything has since the last
    // call of this function, whichever function has handled it: a rank may sleep only if not.
    virtual bool progress() = 0;
    // Call this before a sleep on `descriptor`. Returns false if something has come.
    virtual bool arm() = 0;
    virtual int descriptor() const = 0;

    virtual bool is_lost(uint32_t peer) const = 0;
    // Whether the peer has sent a message of the current call that this rank has asked for but not
    // received yet. A message that this rank has not asked for says nothing about what it waits
    // for.
    virtual bool has_matched_data_from(uint32_t peer) const = 0;

    // Asks every remote rank, or one, for the descriptor of a call. A rank that has not begun the
    // call answers again when it begins it. The request carries this rank's descriptor of the call
    // if this rank has begun it.
    virtual void request_status_of_all(uint64_t call) = 0;
    virtual void request_status(uint32_t peer, uint64_t call) = 0;
    // Tells every remote rank that a rank has warned its user of this call's wait.
    virtual void broadcast_warning(uint64_t call) = 0;
    // Sends a record of this rank to these ranks.
    virtual void send_record(uint32_t number, uint64_t version, std::span<const std::byte> bytes,
                             std::span<const uint32_t> remote_ranks) = 0;
    // Waits a moment until this rank's records are under way: if this rank then did nothing more on
    // the network, it would keep others waiting for them.
    virtual void flush_records() = 0;

protected:
    ~RemoteRanks() = default;
};

} // namespace qccl
