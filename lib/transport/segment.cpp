// Where the parts of a segment lie, and their first state.
#include "transport/segment.hpp"

#include "base/round_up.hpp"

#include <cinttypes>
#include <new>

namespace qccl {

namespace {

constexpr size_t page = 4096;
// With more ranks, whose mailboxes are the square of that number, those that nobody uses stay pages
// that have never been written: their zeros say that there is no mail. With fewer the first
// messages shall not wait for the kernel to find memory.
constexpr uint32_t most_warmed = 64;

template <class T> void construct(T *first, size_t count) {
    for (size_t i = 0; i < count; i++) new (first + i) T;
}

} // namespace

Segment::Segment(std::byte *base, const SegmentShape &shape)
    : base_(base), shape_(shape), last_mail_(mails_kept(shape.ranks) - 1),
      line_stride_(round_up(sizeof(LineHead) + shape.line_bytes, cache_line)),
      lines_(round_up(sizeof(Control), page)), notices_(lines_ + 2 * line_stride_),
      mails_(notice_at(notices_kept)),
      taken_(mails_ + size_t{shape.ranks} * mails_kept(shape.ranks) * sizeof(Mail)),
      readers_(taken_ + size_t{shape.ranks} * sizeof(Taken)),
      outbox_(round_up(readers_ + size_t{slots()} * sizeof(Readers), page)),
      inbox_(round_up(outbox_ + shape.outbox_bytes, page)),
      end_(round_up(inbox_ + shape.inbox_bytes, page)) {}

void Segment::format() const {
    construct(&control(), 1);
    construct(&line(0), 1);
    construct(&line(1), 1);
    for (uint32_t number = 0; number < notices_kept; number++) construct(&notice(number), 1);
    if (shape_.ranks <= most_warmed) {
        construct(at<Mail>(mails_), shape_.ranks * mails());
        construct(at<Taken>(taken_), shape_.ranks);
    }
    construct(at<Readers>(readers_), slots());
}

Result<size_t> SegmentShape::segment_bytes() const {
    // What is counted in 32 bits stays below that by itself: nothing wraps.
    for (const uint64_t bytes : {outbox_bytes, inbox_bytes, line_bytes})
        if (bytes > most_outbox_bytes)
            return Error::make(Code::invalid_argument,
                               "%" PRIu64 " bytes of shared memory are more than the %" PRIu64
                               " that can be addressed",
                               bytes, most_outbox_bytes);
    return Segment(nullptr, *this).end_;
}

} // namespace qccl
