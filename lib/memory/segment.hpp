// The layout of a rank's segment, which is the memory that all local ranks map: where each part
// lies and which rank may write it. Almost every part has one writer, the owner; a part that other
// ranks write often has a cache line of its own. Used throughout the transport, by any thread. Does
// not block.
//
// Behind the layout: the functions for seqlock records, by which a rank publishes data to all ranks
// in its segment, outside its calls. The one writer of a record may replace the bytes while they
// are read. SurvivorExchange uses them, and RemoteEndpoint uses them to copy records between hosts.
// Any thread may read.
#pragma once

#include "base/call_descriptor.hpp"
#include "base/shared_memory.hpp"
#include "memory/message.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstring>
#include <optional>
#include <type_traits>
#include <vector>

namespace qccl {

// ---- Layout

inline constexpr size_t cache_line = 64;

// The number of calls that a rank may be ahead of the slowest rank: the descriptor of a call lies
// in the segment until every rank has begun that call. On one host they take 8 KiB, which stay in
// the L1 cache. Between hosts a rank that only sends, such as a leaf of a gather, gains from more:
// the further it is ahead, the more of its messages go in one packet (64 B from 3 ranks by TCP:
// 20 us with 64 calls, 16 us with 256).
inline constexpr uint32_t calls_kept_on_host = 64, most_calls_kept = 256;
// Returns the capacity of the mailbox from one rank to one other, a power of two: as many messages
// as few ranks can use, and fewer with many ranks, because the number of mailboxes is the square of
// the number of ranks.
constexpr uint32_t mails_kept(uint32_t ranks) {
    constexpr uint32_t most = 128, fewest = 16, of_all_ranks = 2048;
    return std::clamp(std::bit_floor(of_all_ranks / std::max(ranks, 1U)), fewest, most);
}
// The largest outbox, in bytes: more than the address space of a process has.
inline constexpr uint64_t most_outbox_bytes = uint64_t{1} << 48;
// The number of windows of one rank.
inline constexpr uint32_t windows_kept = 32;

// The owner sets `is_asleep` when it goes to sleep; a rank that has something for the owner rings.
struct alignas(cache_line) Bell {
    std::atomic<uint32_t> is_asleep{0};
    std::atomic<uint32_t> rings{0}; // the futex
};

// A long wait in a message, outside of the communicator's calls.
struct MessageWait {
    uint32_t peer = 0;
    bool sends = false;

    // In one word; 0 stands for no such wait.
    uint32_t word() const { return 2 * (peer + 1) + (sends ? 1 : 0); }
    static std::optional<MessageWait> of(uint32_t word) {
        if (word < 2) return std::nullopt;
        return MessageWait{.peer = word / 2 - 1, .sends = word % 2 != 0};
    }
    Wait shown() const { return {peer, sends ? WaitPhase::send : WaitPhase::receive}; }
};

// The state that the owner publishes for the ranks that wait for it.
struct alignas(cache_line) RankStatus {
    std::atomic<uint64_t> begun{0};          // number of its latest call
    std::atomic<uint32_t> has_left{0};       // 1: it takes part in no further call
    std::atomic<uint32_t> waits_on{0};       // in a long wait: 1 + the rank it waits for
    std::atomic<int64_t> awake_ns{0};        // in a long wait: time of its last look
    std::atomic<uint64_t> ended{0};          // latest call of which it has read everything
    std::atomic<uint64_t> offers{0};         // number of changes of its windows
    std::atomic<uint64_t> overflow_bytes{0}; // of overflow memory behind its segment; 0: none
    // 1: the rank knows that the communicator has failed and makes other calls instead of shrinking
    // it.
    std::atomic<uint32_t> ignores_failure{0};
    std::atomic<uint32_t> message_wait{0};    // as MessageWait::word
    std::atomic<uint64_t> overflow_needed{0}; // bytes yet to be allocated for its current call
};
static_assert(sizeof(RankStatus) == cache_line);

// A window: memory that the owner exposes to its peers, and counts of the peers that use it. The
// owner writes `file` while there are no holders. `offer` tells a peer that has seen an earlier
// offer that this is another one.
struct alignas(cache_line) OfferedWindow {
    std::atomic<uint64_t> offer{0};   // its number; 0: withdrawn
    std::atomic<uint32_t> holders{0}; // peers that have an offer mapped or are checking it
    std::atomic<uint32_t> readers{0}; // peers that have mapped this one
    SharedFile file;
};
static_assert(sizeof(OfferedWindow) == cache_line);

// Every segment has one; the one of the host's lowest rank counts (rank 0 if there is one host).
// Its memory outlives that rank.
struct alignas(cache_line) SharedErrorLine {
    std::atomic<uint32_t> recorded_by{0}; // 1 + the rank whose record is the failure; 0: none
    std::atomic<uint32_t> is_told{0};     // 1: some rank reports it to a person
    std::atomic<uint64_t> warned_call{0}; // latest call that a rank has warned about
};

struct alignas(cache_line) FailureRecord {
    Error error;
};

// A call descriptor that may be overwritten while it is read. A reader checks `call` before and
// after it reads the words.
struct alignas(cache_line) PublishedCall {
    using Words = std::array<uint64_t, sizeof(CallDescriptor) / sizeof(uint64_t)>;

    std::atomic<uint64_t> call{0};
    std::atomic<uint64_t> hash{0};
    std::array<std::atomic<uint64_t>, std::tuple_size_v<Words>> words{};
};

// The header of an eager slot. A few bytes follow it, so that a small exchange moves one cache
// line; more bytes lie in a long slot. There are so many slots for few bytes that a rank may be
// many small exchanges ahead, and two long slots.
struct alignas(32) EagerHeader {
    std::atomic<uint64_t> stamp{0}; // number of the exchange; written last
    uint64_t call = 0;
    uint64_t hash = 0; // of the call descriptor
    uint64_t bytes = 0;
};
static_assert(sizeof(EagerHeader) == 32);
inline constexpr uint32_t eager_slots_kept = 48, long_eager_slots_kept = 2;
// An odd number of cache lines, so that the headers do not share few sets of a cache.
inline constexpr size_t eager_slot_stride = 17 * cache_line;
inline constexpr size_t most_short_eager_bytes = eager_slot_stride - sizeof(EagerHeader);

// Returns the exchange in which every peer must have posted before a rank writes what it posts in
// `exchange`: a peer reads the bytes of an exchange until it posts in the next one.
constexpr uint64_t exchange_before(uint64_t exchange, size_t bytes) {
    const uint64_t ahead =
        (bytes <= most_short_eager_bytes ? eager_slots_kept : long_eager_slots_kept) - 1;
    return exchange > ahead ? exchange - ahead : 0;
}

// The descriptor of one message: its identity, and where its bytes lie.
struct alignas(cache_line) Mail {
    std::atomic<uint64_t> stamp{0}; // 1 + its number in the mailbox; written last
    uint64_t call = 0;
    uint64_t hash = 0; // of the call descriptor
    MessageTag tag;
    uint32_t origin = 0;
    uint32_t slot = 0;
    uint64_t offset = 0; // into the origin's outbox, inbox and overflow memory in a row
    uint64_t bytes = 0;
    // Bytes that belong to the message and lie in a window of the origin: 1 + the window's number,
    // above the offset into the window; 0: there are none.
    uint64_t zero_copy = 0;
    static constexpr unsigned zero_copy_offset_bits = 48;
};
static_assert(sizeof(Mail) == cache_line);

// The number of messages of one source that the owner has consumed; the source may reuse their
// places.
struct alignas(cache_line) TailCounter {
    std::atomic<uint64_t> count{0};
};

// The number of ranks that still read a slot of the owner. A sender adds to it; a rank that has
// read subtracts.
struct alignas(cache_line) Readers {
    std::atomic<uint32_t> count{0};
};

// The header of a seqlock record, by which the owner publishes data outside its calls. The bytes
// follow, in words, and may be overwritten while they are read.
struct alignas(cache_line) SeqlockHeader {
    std::atomic<uint64_t> version{0}; // twice the record's version; odd while it is written
    std::atomic<uint64_t> bytes{0};
};
inline constexpr uint32_t records_kept = 6;
// Returns the capacity of a record in bytes. Two bits for every rank fit, and so does most of what
// a rank publishes when a communicator is created.
constexpr uint64_t record_bytes(uint32_t ranks) {
    constexpr uint64_t usual = 6144, beside = 3072;
    return std::max(usual, uint64_t{ranks} / 4 / cache_line * cache_line + beside);
}

static_assert(std::atomic<uint64_t>::is_always_lock_free &&
                  std::atomic<uint32_t>::is_always_lock_free,
              "a lock would lie in one process only");

// The sizes of a segment's parts, equal on all ranks. It travels as bytes, and so has no padding.
struct SegmentShape {
    uint32_t ranks = 1;
    uint32_t slots = 0; // of the outbox; an inbox has as many again
    uint64_t eager_slot_bytes = 0;
    uint64_t outbox_bytes = 0;
    uint64_t inbox_bytes = 0; // 0 if all ranks are local
    uint64_t record_bytes = qccl::record_bytes(0);
    uint64_t calls = calls_kept_on_host; // descriptors; a power of two, at most `most_calls_kept`

    bool operator==(const SegmentShape &) const = default;
    // Returns the size of the segment in bytes, or invalid_argument if an outbox, an inbox or an
    // eager slot is larger than can be addressed.
    Result<size_t> segment_bytes() const;
};
static_assert(std::has_unique_object_representations_v<SegmentShape>);

// One rank's view of one rank's segment.
class Segment {
public:
    Segment(std::byte *base, const SegmentShape &shape);
    // Writes the first state into the memory, which is all zeros. The owner calls this once, before
    // any other rank sees the memory.
    void format() const;

    Bell &bell() const { return control().bell; }
    RankStatus &status() const { return control().status; }
    SharedErrorLine &shared_error() const { return control().shared_error; }
    FailureRecord &failure() const { return control().failure; }
    OfferedWindow &window(uint32_t number) const { return control().windows[number]; }
    PublishedCall &call(uint64_t number) const {
        return at<PublishedCall>(calls_)[number & (calls() - 1)];
    }
    // How many descriptors of calls are kept, a power of two.
    uint64_t calls() const { return shape_.calls; }
    EagerHeader &eager_header(uint64_t exchange) const {
        return *at<EagerHeader>(eager_ + exchange % eager_slots_kept * eager_slot_stride);
    }
    // Where so many bytes of the exchange lie.
    std::byte *eager_data(uint64_t exchange, size_t bytes) const {
        return eager_data(eager_header(exchange), exchange, bytes);
    }
    // The same for a caller that has the header.
    std::byte *eager_data(EagerHeader &head, uint64_t exchange, size_t bytes) const {
        if (bytes <= most_short_eager_bytes) return reinterpret_cast<std::byte *>(&head + 1);
        return base_ + long_eager_ + exchange % long_eager_slots_kept * long_eager_stride_;
    }
    SeqlockHeader &record(uint32_t number) const { return *at<SeqlockHeader>(record_at(number)); }
    std::span<std::atomic<uint64_t>> record_words(uint32_t number) const {
        return {at<std::atomic<uint64_t>>(record_at(number) + sizeof(SeqlockHeader)),
                shape_.record_bytes / sizeof(uint64_t)};
    }
    Mail &mail(uint32_t destination, uint64_t number) const {
        return at<Mail>(mails_)[size_t{destination} * mails() + (number & last_mail_)];
    }
    uint64_t mails() const { return last_mail_ + 1; } // capacity of a mailbox
    TailCounter &tail(uint32_t source) const { return at<TailCounter>(tails_)[source]; }
    Readers &readers(uint32_t slot) const { return at<Readers>(readers_)[slot]; }
    std::span<std::byte> outbox() const { return {base_ + outbox_, shape_.outbox_bytes}; }
    std::span<std::byte> inbox() const { return {base_ + inbox_, shape_.inbox_bytes}; }
    std::byte *base() const { return base_; }
    size_t bytes() const { return end_; }
    // Outbox and inbox, which messages point into.
    std::span<std::byte> arena() const { return {base_ + outbox_, end_ - outbox_}; }
    uint32_t slots() const { return shape_.slots * (shape_.inbox_bytes == 0 ? 1 : 2); }

private:
    struct Control {
        Bell bell;
        RankStatus status;
        SharedErrorLine shared_error;
        FailureRecord failure;
        std::array<OfferedWindow, windows_kept> windows;
    };

    template <class T> T *at(size_t offset) const { return reinterpret_cast<T *>(base_ + offset); }
    size_t record_at(uint32_t number) const {
        return records_ + number * (sizeof(SeqlockHeader) + shape_.record_bytes);
    }
    Control &control() const { return *at<Control>(0); }

    friend struct SegmentShape;
    std::byte *base_;
    SegmentShape shape_;
    uint64_t last_mail_; // highest index in a mailbox, used as a mask
    size_t long_eager_stride_;
    // Offsets of the parts in bytes, in this order.
    size_t calls_, eager_, long_eager_, records_, mails_, tails_, readers_, outbox_, inbox_, end_;
};

// ---- Seqlock records

// Replaces record `number`. `version` is not 0; `bytes` are at most as many as the segment's shape
// has for a record.
void write_record(const Segment &segment, uint32_t number, uint64_t version,
                  std::span<const std::byte> bytes);
// Returns a copy of the latest record, of at most `most` bytes. Nothing: there is none, or it is
// being written.
std::optional<std::vector<std::byte>> read_record(const Segment &segment, uint32_t number,
                                                  size_t most = SIZE_MAX);
// Returns the version of the latest record; 0: there is none.
uint64_t version_of_record(const Segment &segment, uint32_t number);

// Returns the bytes of a record: `head`, then `rest`.
template <class Head>
std::vector<std::byte> joined(const Head &head, std::span<const std::byte> rest) {
    std::vector<std::byte> bytes(sizeof head + rest.size());
    std::memcpy(bytes.data(), &head, sizeof head);
    std::copy(rest.begin(), rest.end(), bytes.begin() + sizeof head);
    return bytes;
}
// Returns the head of a record. Nothing: the record is shorter than a head.
template <class Head> std::optional<Head> head_of(std::span<const std::byte> record) {
    Head head;
    if (record.size() < sizeof head) return std::nullopt;
    std::memcpy(&head, record.data(), sizeof head);
    return head;
}

} // namespace qccl
