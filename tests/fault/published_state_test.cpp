// Tests CallHistory of lib/fault/published_state: a descriptor that its rank replaces while another
// rank reads it does not count, and a descriptor that comes late replaces no later one.
#include "tests/kit/first_touch.hpp"

#include "fault/published_state.hpp"

using namespace qccl;
using namespace qtest;

namespace {

constexpr SegmentShape shape{.ranks = 2, .slots = 4, .eager_slot_bytes = 64, .outbox_bytes = 4096};

// Those of two ranks of one host.
class Segments {
protected:
    std::vector<Mapping> memories;
    PeerTable first{0, Fences::both, {}}, second{1, Fences::both, {}};

    Segments() {
        const auto bytes = shape.segment_bytes();
        CHECK_OK(bytes);
        for (int i = 0; i < 2; i++) {
            auto memory = Mapping::anonymous(*bytes);
            CHECK_OK(memory);
            memories.push_back(std::move(*memory));
            const Segment segment(memories.back().base(), shape);
            segment.format();
            first.segments.push_back(segment);
            second.segments.push_back(segment);
        }
    }
};

// The calls that the two have begun.
struct Pair : Segments {
    using Segments::first;
    CallHistory ours{first}, theirs{second};
};

void publish(CallHistory &history, uint64_t call) {
    CallDescriptor shape_of_call;
    shape_of_call.count = call;
    history.begin(shape_of_call, {.call = call});
    history.publish();
}

// The place of the call's descriptor begins in one page and ends in the next.
uint64_t call_across_pages(const Segment &segment) {
    for (uint64_t call = 1; call <= calls_kept_on_host; call++) {
        const auto *const place = &segment.call(call);
        if (FirstTouch::page_of(place) != FirstTouch::page_of(&place->words.back())) return call;
    }
    throw Failure{"each descriptor lies in one page"};
}

// The reader comes to the second page, and the writer has begun a later call by then.
void a_descriptor_that_is_replaced_while_it_is_read_is_not_found() {
    if (!FirstTouch::is_possible) return;
    Pair pair;
    const uint64_t call = call_across_pages(pair.first.segments[1]);
    publish(pair.theirs, call);
    CHECK_EQ(pair.ours.find(1, call)->count, call);
    const FirstTouch middle(&pair.first.segments[1].call(call).words.back(),
                            [&] { publish(pair.theirs, call + calls_kept_on_host); });
    CHECK(!pair.ours.find(1, call));
    CHECK(middle.has_come());
    CHECK_EQ(pair.ours.find(1, call + calls_kept_on_host)->count, call + calls_kept_on_host);
}

// The peer goes on while this rank compares: the hash of the peer's later call is no disagreement.
void a_call_that_is_replaced_while_it_is_compared_is_no_disagreement() {
    if (!FirstTouch::is_possible) return;
    Pair pair;
    publish(pair.theirs, 1);
    publish(pair.ours, 1);
    CHECK(!pair.ours.disagreement(1));
    // After the number of the peer's call, the comparison reads the number of this rank's own.
    const FirstTouch middle(&pair.first.segments[0].call(1),
                            [&] { publish(pair.theirs, 1 + calls_kept_on_host); });
    CHECK(!pair.ours.disagreement(1));
    CHECK(middle.has_come());
}

void a_descriptor_that_comes_late_replaces_no_later_one() {
    Pair pair;
    const auto record = [&](uint64_t call) {
        CallDescriptor descriptor;
        descriptor.call = call;
        descriptor.count = call;
        pair.ours.record(1, descriptor);
    };
    record(1);
    CHECK_EQ(pair.ours.find(1, 1)->count, 1U);
    record(1 + calls_kept_on_host);
    record(1);
    CHECK(!pair.ours.find(1, 1));
    CHECK_EQ(pair.ours.find(1, 1 + calls_kept_on_host)->count, 1 + calls_kept_on_host);
}

} // namespace

int main() {
    const CMUnitTest tests[] = {
        QTEST(a_descriptor_that_is_replaced_while_it_is_read_is_not_found),
        QTEST(a_call_that_is_replaced_while_it_is_compared_is_no_disagreement),
        QTEST(a_descriptor_that_comes_late_replaces_no_later_one),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
