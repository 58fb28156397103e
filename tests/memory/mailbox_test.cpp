// Tests the mailboxes of lib/memory/local_messages and their place in lib/memory/segment: mailboxes
// of every size fill up and wrap around in order, overlap nothing else in the segment, and use
// memory only where they are used.
#include "tests/kit/qtest.hpp"

#include "memory/local_messages.hpp"

#include <sys/mman.h>

using namespace qccl;

namespace {

SegmentShape shape_of(uint32_t ranks) { return {ranks, 4, 64, 4096}; }

// The segments of two ranks of a job, for the mailbox from the first to the second.
struct Pair {
    std::vector<Mapping> memories;
    PeerTable first{0, Fences::both, {}}, second{1, Fences::both, {}};

    explicit Pair(uint32_t ranks) {
        const auto bytes = shape_of(ranks).segment_bytes();
        CHECK_OK(bytes);
        for (int i = 0; i < 2; i++) {
            auto memory = Mapping::anonymous(*bytes);
            CHECK_OK(memory);
            memories.push_back(std::move(*memory));
            const Segment segment(memories.back().base(), shape_of(ranks));
            segment.format();
            first.segments.push_back(segment);
            second.segments.push_back(segment);
        }
    }
};

void mailboxes_run_full_and_round() {
    for (const uint32_t ranks : {2U, 33U, 100U, 1000U}) {
        Pair pair(ranks);
        Outbound outbound(pair.first, 1);
        Inbound inbound(pair.second, 0);
        uint64_t posted = 0, tail = 0;
        for (uint64_t round = 0; round < 5; round++) {
            for (Mail *mail; (mail = outbound.next()); posted++) {
                mail->bytes = posted;
                outbound.post();
            }
            CHECK_EQ(posted - tail, mails_kept(ranks));
            // A few messages stay, so that the mailbox wraps around at another place in each round.
            for (; posted - tail > 3; tail++) {
                const Mail *const mail = inbound.peek();
                CHECK(mail != nullptr);
                CHECK_EQ(mail->bytes, tail);
                inbound.take();
            }
        }
        for (; tail < posted; tail++) inbound.take();
        CHECK(inbound.peek() == nullptr);
    }
}

void mailboxes_lie_apart() {
    for (const uint32_t ranks : {1U, 2U, 16U, 17U, 64U, 65U, 128U, 129U, 1000U}) {
        const auto bytes = shape_of(ranks).segment_bytes();
        CHECK_OK(bytes);
        auto memory = Mapping::anonymous(*bytes);
        CHECK_OK(memory);
        const Segment segment(memory->base(), shape_of(ranks));
        const uint64_t mails = segment.mails();
        const auto address = [](auto &part) { return reinterpret_cast<uintptr_t>(&part); };
        uintptr_t last =
            reinterpret_cast<uintptr_t>(segment.eager_data(1, most_short_eager_bytes + 1)) + 64 - 1;
        for (uint32_t rank = 0; rank < ranks; rank++) {
            CHECK(address(segment.mail(rank, 0)) > last);
            CHECK_EQ(address(segment.mail(rank, mails)), address(segment.mail(rank, 0)));
            last = address(segment.mail(rank, mails - 1)) + sizeof(Mail) - 1;
        }
        CHECK(address(segment.tail(0)) > last);
    }
}

size_t resident_bytes(const Mapping &memory) {
    std::vector<unsigned char> pages(memory.bytes() / 4096);
    CHECK_EQ(mincore(memory.base(), memory.bytes(), pages.data()), 0);
    size_t resident = 0;
    for (const unsigned char page : pages) resident += (page & 1) * size_t{4096};
    return resident;
}

// Memory is counted in pages of the kernel. Transparent huge pages are switched off, because they
// would make more memory resident than is used.
void mailboxes_of_many_ranks_cost_what_they_hold() {
    for (const uint32_t ranks : {8U, 1024U}) {
        const auto bytes = shape_of(ranks).segment_bytes();
        CHECK_OK(bytes);
        auto memory = Mapping::anonymous(*bytes);
        CHECK_OK(memory);
        madvise(memory->base(), memory->bytes(), MADV_NOHUGEPAGE);
        const Segment segment(memory->base(), shape_of(ranks));
        segment.format();
        const size_t mailboxes = ranks * segment.mails() * sizeof(Mail);
        // With few ranks, mailboxes are resident before the first message.
        if (ranks == 8)
            CHECK(resident_bytes(*memory) >= mailboxes);
        else
            CHECK(resident_bytes(*memory) <= size_t{64} << 10);
        CHECK(*bytes <= size_t{2} << 20);
    }
    CHECK_EQ(mails_kept(2), 128U);
    CHECK_EQ(mails_kept(16), 128U);
    CHECK_EQ(mails_kept(17), 64U);
    CHECK_EQ(mails_kept(UINT32_MAX), 16U);
}

} // namespace

int main() {
    const CMUnitTest tests[] = {
        QTEST(mailboxes_run_full_and_round),
        QTEST(mailboxes_lie_apart),
        QTEST(mailboxes_of_many_ranks_cost_what_they_hold),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
