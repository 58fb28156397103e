// The memory of one rank that all others map: where everything lies in it and who may write there.
// Almost everything has one writer, the owner; what others write often has a cache line of its own.
// Knows neither how the memory is made nor how anyone waits.
#pragma once

#include "transport/shared_memory.hpp"
#include "transport/transport.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>

namespace qccl {

inline constexpr size_t cache_line = 64;

// So many calls a rank may be ahead of the slowest: a call's descriptor lies in its segment until
// every rank has begun that call. Eight KiB, which stay in the L1 cache.
inline constexpr uint32_t calls_kept = 64;
// Messages on their way from one rank to one other, a power of two: as many as few ranks can use,
// and fewer where many ranks have the square of their number of mailboxes.
constexpr uint32_t mails_kept(uint32_t ranks) {
    constexpr uint32_t most = 128, fewest = 16, of_all_ranks = 2048;
    return std::clamp(std::bit_floor(of_all_ranks / std::max(ranks, 1U)), fewest, most);
}
// Windows of one rank.
inline constexpr uint32_t windows_kept = 32;

// Written by its owner when it goes to sleep, rung by whoever has something for it.
struct alignas(cache_line) Bell {
    std::atomic<uint32_t> is_asleep{0};
    std::atomic<uint32_t> rings{0}; // the futex
};

// What its owner tells those who wait for it.
struct alignas(cache_line) Presence {
    std::atomic<uint64_t> begun{0};          // number of its latest call
    std::atomic<uint32_t> has_left{0};       // it takes part in no further call
    std::atomic<uint32_t> waits_on{0};       // in a long wait: 1 + the rank it waits for
    std::atomic<int64_t> awake_ns{0};        // in a long wait: when it last looked around
    std::atomic<uint64_t> ended{0};          // latest call of which it has read all
    std::atomic<uint64_t> offers{0};         // changes of its windows
    std::atomic<uint64_t> overflow_bytes{0}; // behind its segment; 0: there is nothing
    // It has been told that the communicator has failed, and is not shrinking it.
    std::atomic<uint32_t> ignores_failure{0};
    std::atomic<uint64_t> overflow_needed{0}; // bytes that it has yet to get for its current call
};
static_assert(sizeof(Presence) == cache_line);

// Memory that its owner shows to its peers, and who has mapped it. The owner writes the file while
// nobody holds it; `offer` tells those who have seen an earlier one that this is another.
struct alignas(cache_line) OfferedWindow {
    std::atomic<uint64_t> offer{0};   // its number; 0: hidden
    std::atomic<uint32_t> holders{0}; // peers that have an offer mapped or are looking at it
    std::atomic<uint32_t> readers{0}; // peers that have mapped this one
    SharedFile file;
};
static_assert(sizeof(OfferedWindow) == cache_line);

// In every segment; the one in rank 0's counts. Its memory outlives rank 0.
struct alignas(cache_line) VerdictLine {
    std::atomic<uint32_t> recorded_by{0}; // 1 + the rank whose record is everyone's failure
    std::atomic<uint32_t> is_told{0};     // some rank tells a person of it
    std::atomic<uint64_t> warned_call{0}; // the latest that somebody has warned about
};

struct alignas(cache_line) FailureRecord {
    Error error;
};

// A call descriptor that may be overwritten while it is read: words between two looks at `call`.
struct alignas(cache_line) PublishedCall {
    using Words = std::array<uint64_t, sizeof(CallDescriptor) / sizeof(uint64_t)>;

    std::atomic<uint64_t> call{0};
    std::atomic<uint64_t> hash{0};
    std::array<std::atomic<uint64_t>, std::tuple_size_v<Words>> words{};
};

// Head of a line; the bytes follow in the same cache line, so that a small exchange moves one.
struct alignas(32) LineHead {
    std::atomic<uint64_t> stamp{0}; // number of the exchange; written last
    uint64_t call = 0;
    uint64_t hash = 0; // of the call descriptor
    uint64_t bytes = 0;
};
static_assert(sizeof(LineHead) == 32);

// One message: what it is and where its bytes lie.
struct alignas(cache_line) Mail {
    std::atomic<uint64_t> stamp{0}; // 1 + its number in the mailbox; written last
    uint64_t call = 0;
    uint64_t hash = 0; // of the call descriptor
    MessageTag tag;
    uint32_t origin = 0;
    uint32_t slot = 0;
    uint64_t offset = 0; // in the origin's outbox, inbox and overflow, one behind the other
    uint64_t bytes = 0;
    // What goes with it: 1 + the number of a window of the origin, and how far into that it lies; 0
    // where nothing does.
    uint64_t loan = 0;
    static constexpr unsigned loan_offset_bits = 48;
};
static_assert(sizeof(Mail) == cache_line);

// How many mails of one source its owner has taken: room for the source.
struct alignas(cache_line) Taken {
    std::atomic<uint64_t> count{0};
};

// Ranks that still read a slot of the owner. Those who send add, those who have read subtract.
struct alignas(cache_line) Readers {
    std::atomic<uint32_t> count{0};
};

// What its owner tells the others beside its calls; the bytes follow, in words, and may be
// overwritten while they are read.
struct alignas(cache_line) NoticeHead {
    std::atomic<uint64_t> version{0}; // twice its number; odd while it is written
    std::atomic<uint64_t> bytes{0};
};
inline constexpr uint32_t notices_kept = 4;
// Two bits for every rank find room, and so does most of what a rank says when a communicator is
// made.
constexpr uint64_t notice_bytes(uint32_t ranks) {
    constexpr uint64_t usual = 4096, beside = 1024;
    return std::max(usual, uint64_t{ranks} / 4 / cache_line * cache_line + beside);
}

static_assert(std::atomic<uint64_t>::is_always_lock_free &&
                  std::atomic<uint32_t>::is_always_lock_free,
              "a lock would lie in one process only");

// Equal on all ranks.
struct SegmentShape {
    uint32_t ranks = 1;
    uint32_t slots = 0; // of the outbox, and as many of the inbox if there is one
    uint64_t line_bytes = 0;
    uint64_t outbox_bytes = 0;
    uint64_t inbox_bytes = 0; // none where all ranks are near
    uint64_t notice_bytes = qccl::notice_bytes(0);

    bool operator==(const SegmentShape &) const = default;
    // An error where not even an address could be had for so many.
    Result<size_t> segment_bytes() const;
};

// A view of one rank's segment.
class Segment {
public:
    Segment(std::byte *base, const SegmentShape &shape);
    // The owner, once, before anyone else sees the memory, which is all zeros.
    void format() const;

    Bell &bell() const { return control().bell; }
    Presence &presence() const { return control().presence; }
    VerdictLine &verdict() const { return control().verdict; }
    FailureRecord &failure() const { return control().failure; }
    OfferedWindow &window(uint32_t number) const { return control().windows[number]; }
    PublishedCall &call(uint64_t number) const { return control().calls[number % calls_kept]; }
    LineHead &line(uint64_t exchange) const {
        return *at<LineHead>(lines_ + exchange % 2 * line_stride_);
    }
    std::byte *line_data(uint64_t exchange) const {
        return base_ + lines_ + exchange % 2 * line_stride_ + sizeof(LineHead);
    }
    NoticeHead &notice(uint32_t number) const { return *at<NoticeHead>(notice_at(number)); }
    std::span<std::atomic<uint64_t>> notice_words(uint32_t number) const {
        return {at<std::atomic<uint64_t>>(notice_at(number) + sizeof(NoticeHead)),
                shape_.notice_bytes / sizeof(uint64_t)};
    }
    Mail &mail(uint32_t destination, uint64_t number) const {
        return at<Mail>(mails_)[size_t{destination} * mails() + (number & last_mail_)];
    }
    uint64_t mails() const { return last_mail_ + 1; } // from one rank to one other
    Taken &taken(uint32_t source) const { return at<Taken>(taken_)[source]; }
    Readers &readers(uint32_t slot) const { return at<Readers>(readers_)[slot]; }
    std::span<std::byte> outbox() const { return {base_ + outbox_, shape_.outbox_bytes}; }
    std::span<std::byte> inbox() const { return {base_ + inbox_, shape_.inbox_bytes}; }
    std::byte *base() const { return base_; }
    size_t bytes() const { return end_; }
    // Both, which messages point into.
    std::span<std::byte> arena() const { return {base_ + outbox_, end_ - outbox_}; }
    uint32_t slots() const { return shape_.slots * (shape_.inbox_bytes == 0 ? 1 : 2); }

private:
    struct Control {
        Bell bell;
        Presence presence;
        VerdictLine verdict;
        FailureRecord failure;
        std::array<PublishedCall, calls_kept> calls;
        std::array<OfferedWindow, windows_kept> windows;
    };

    template <class T> T *at(size_t offset) const { return reinterpret_cast<T *>(base_ + offset); }
    size_t notice_at(uint32_t number) const {
        return notices_ + number * (sizeof(NoticeHead) + shape_.notice_bytes);
    }
    Control &control() const { return *at<Control>(0); }

    friend struct SegmentShape;
    std::byte *base_;
    SegmentShape shape_;
    uint64_t last_mail_; // of a mailbox
    size_t line_stride_;
    // Offsets, in this order.
    size_t lines_, notices_, mails_, taken_, readers_, outbox_, inbox_, end_;
};

} // namespace qccl
