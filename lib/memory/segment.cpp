// Computes where the parts of a segment lie, writes their first state, and writes and reads seqlock
// records.
#include "memory/segment.hpp"

#include "base/types.hpp"

#include <cinttypes>
#include <cstring>
#include <new>

namespace qccl {

// ---- Layout

namespace {

constexpr size_t page = 4096;
// With at most this many ranks, `format` writes eager slots and mailboxes, so that the first
// messages do not wait for the kernel to find memory. With more ranks there are too many mailboxes
// (the square of the number of ranks): unused ones stay pages that are never written, whose zeros
// say that there is no message.
constexpr uint32_t most_warmed = 64;

template <class T> void construct(T *first, size_t count) {
    for (size_t i = 0; i < count; i++) new (first + i) T;
}

} // namespace

Segment::Segment(std::byte *base, const SegmentShape &shape)
    : base_(base), shape_(shape), last_mail_(mails_kept(shape.ranks) - 1),
      long_eager_stride_(round_up(shape.eager_slot_bytes, cache_line)), calls_(sizeof(Control)),
      eager_(round_up(calls_ + shape.calls * sizeof(PublishedCall), page)),
      long_eager_(eager_ + eager_slots_kept * eager_slot_stride),
      records_(long_eager_ + long_eager_slots_kept * long_eager_stride_),
      mails_(record_at(records_kept)),
      tails_(mails_ + size_t{shape.ranks} * mails_kept(shape.ranks) * sizeof(Mail)),
      readers_(tails_ + size_t{shape.ranks} * sizeof(TailCounter)),
      outbox_(round_up(readers_ + size_t{slots()} * sizeof(Readers), page)),
      inbox_(round_up(outbox_ + shape.outbox_bytes, page)),
      end_(round_up(inbox_ + shape.inbox_bytes, page)) {}

void Segment::format() const {
    construct(&control(), 1);
    construct(at<PublishedCall>(calls_), calls());
    for (uint32_t number = 0; number < records_kept; number++) construct(&record(number), 1);
    if (shape_.ranks <= most_warmed) {
        for (uint64_t slot = 0; slot < eager_slots_kept; slot++) construct(&eager_header(slot), 1);
        construct(at<Mail>(mails_), shape_.ranks * mails());
        construct(at<TailCounter>(tails_), shape_.ranks);
    }
    construct(at<Readers>(readers_), slots());
}

Result<size_t> SegmentShape::segment_bytes() const {
    // The parts that are counted in 32 bits are always smaller than this limit, so no sum wraps.
    for (const uint64_t bytes : {outbox_bytes, inbox_bytes, eager_slot_bytes})
        if (bytes > most_outbox_bytes)
            return invalid_argument("%" PRIu64 " bytes of shared memory are more than the %" PRIu64
                                    " that can be addressed",
                                    bytes, most_outbox_bytes);
    return Segment(nullptr, *this).end_;
}

// ---- Seqlock records

void write_record(const Segment &segment, uint32_t number, uint64_t version,
                  std::span<const std::byte> bytes) {
    SeqlockHeader &head = segment.record(number);
    const auto words = segment.record_words(number);
    // The words are stored with release order, so a reader that acquires a new word sees this odd
    // version, too.
    head.version.store(2 * version - 1, std::memory_order_relaxed);
    for (size_t at = 0; at < bytes.size(); at += sizeof(uint64_t)) {
        uint64_t word = 0;
        std::memcpy(&word, &bytes[at], std::min(sizeof word, bytes.size() - at));
        words[at / sizeof word].store(word, std::memory_order_release);
    }
    head.bytes.store(bytes.size(), std::memory_order_release);
    head.version.store(2 * version, std::memory_order_release);
}

std::optional<std::vector<std::byte>> read_record(const Segment &segment, uint32_t number,
                                                  size_t most) {
    const SeqlockHeader &head = segment.record(number);
    const uint64_t version = head.version.load(std::memory_order_acquire);
    if (version == 0 || version % 2 == 1) return std::nullopt;
    const auto words = segment.record_words(number);
    const uint64_t bytes = head.bytes.load(std::memory_order_acquire);
    if (bytes > words.size_bytes()) return std::nullopt;
    std::vector<std::byte> copy(std::min(bytes, most));
    for (size_t at = 0; at < copy.size(); at += sizeof(uint64_t)) {
        const uint64_t word = words[at / sizeof word].load(std::memory_order_acquire);
        std::memcpy(&copy[at], &word, std::min(sizeof word, copy.size() - at));
    }
    if (head.version.load(std::memory_order_relaxed) != version) return std::nullopt;
    return copy;
}

uint64_t version_of_record(const Segment &segment, uint32_t number) {
    return segment.record(number).version.load(std::memory_order_acquire) / 2;
}

} // namespace qccl
