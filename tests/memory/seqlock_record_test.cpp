// Tests the seqlock records of lib/memory/segment: a reader gets whole records only, whatever the
// writer does while the reader reads.
#include "tests/kit/first_touch.hpp"

#include "memory/segment.hpp"

using namespace qccl;
using namespace qtest;

namespace {

constexpr SegmentShape shape{.ranks = 2, .slots = 4, .eager_slot_bytes = 64, .outbox_bytes = 4096};

struct OneSegment {
    Mapping memory;
    Segment segment;

    OneSegment() : memory(map()), segment(memory.base(), shape) { segment.format(); }
    static Mapping map() {
        const auto bytes = shape.segment_bytes();
        CHECK_OK(bytes);
        auto memory = Mapping::anonymous(*bytes);
        CHECK_OK(memory);
        return std::move(*memory);
    }
};

using Bytes = std::vector<std::byte>;

Bytes filled(size_t bytes, int value) { return Bytes(bytes, static_cast<std::byte>(value)); }

size_t capacity(const Segment &segment) { return segment.record_words(0).size_bytes(); }

// The last word of the record lies in another page than the first.
uint32_t record_across_pages(const Segment &segment) {
    for (uint32_t number = 0; number < records_kept; number++) {
        const auto words = segment.record_words(number);
        if (FirstTouch::page_of(&words.front()) != FirstTouch::page_of(&words.back()))
            return number;
    }
    throw Failure{"each record lies in one page"};
}

void the_latest_record_is_read() {
    const OneSegment one;
    for (uint32_t number = 0; number < records_kept; number++) {
        CHECK(!read_record(one.segment, number));
        CHECK_EQ(version_of_record(one.segment, number), 0U);
    }
    uint64_t version = 0;
    for (const size_t bytes : {size_t{0}, size_t{1}, size_t{13}, capacity(one.segment)})
        for (uint32_t number = 0; number < records_kept; number++) {
            version++;
            const auto value = static_cast<int>(version);
            write_record(one.segment, number, version, filled(bytes, value));
            CHECK(read_record(one.segment, number) == filled(bytes, value));
            CHECK(read_record(one.segment, number, 5) == filled(std::min<size_t>(bytes, 5), value));
            CHECK_EQ(version_of_record(one.segment, number), version);
        }
}

// The reader comes to the record's second page, and the writer replaces the whole record then.
void a_record_that_is_replaced_while_it_is_read_does_not_count() {
    if (!FirstTouch::is_possible) return;
    const OneSegment one;
    const uint32_t number = record_across_pages(one.segment);
    const size_t bytes = capacity(one.segment);
    write_record(one.segment, number, 1, filled(bytes, 1));
    const FirstTouch middle(&one.segment.record_words(number).back(),
                            [&] { write_record(one.segment, number, 2, filled(bytes, 2)); });
    CHECK(!read_record(one.segment, number));
    CHECK(middle.has_come());
    CHECK(read_record(one.segment, number) == filled(bytes, 2));
}

// The writer comes to the record's second page, and the reader looks then.
void a_record_that_is_being_written_does_not_count() {
    if (!FirstTouch::is_possible) return;
    const OneSegment one;
    const uint32_t number = record_across_pages(one.segment);
    const size_t bytes = capacity(one.segment);
    write_record(one.segment, number, 1, filled(bytes, 1));
    std::optional<Bytes> found = Bytes();
    const FirstTouch middle(&one.segment.record_words(number).back(),
                            [&] { found = read_record(one.segment, number); });
    write_record(one.segment, number, 2, filled(bytes, 2));
    CHECK(middle.has_come());
    CHECK(!found);
    CHECK(read_record(one.segment, number) == filled(bytes, 2));
}

} // namespace

int main() {
    const CMUnitTest tests[] = {
        QTEST(the_latest_record_is_read),
        QTEST(a_record_that_is_replaced_while_it_is_read_does_not_count),
        QTEST(a_record_that_is_being_written_does_not_count),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
