// Tests schedule/schedule: slots, teams, and the steps that the author's verbs write.
#include "tests/kit/qtest.hpp"

#include "schedule/schedule.hpp"

using namespace qccl;

static void teams_go_round() {
    const Team team{.size = 5, .rank = 3};
    CHECK_EQ(team.after(1), 4U);
    CHECK_EQ(team.after(2), 0U);
    CHECK_EQ(team.after(7), 0U);
    CHECK_EQ(team.before(3), 0U);
    CHECK_EQ(team.before(4), 4U);
    CHECK_EQ(team.before(5), 3U);
    const Team large{.size = ~0U, .rank = ~0U - 1};
    CHECK_EQ(large.after(1), 0U);
    CHECK_EQ(large.before(~0U), large.rank);
}

static void slots_know_their_kind_and_index() {
    CHECK(wire(7).is(SlotKind::wire));
    CHECK(!wire(7).is(SlotKind::input));
    CHECK(wire(7).after(2) == wire(9));
    CHECK(input(1) != output(1));
    CHECK(Slot{}.is(SlotKind::none));
    CHECK_EQ(static_cast<uint32_t>(sum(Slot::max_index).index), Slot::max_index);
}

static void steps_take_the_chunk_of_their_slots() {
    Schedule s{.chunks = 4};
    s.send(1, input(2));
    s.recv(2, wire(5), 3);
    s.send(3, wire(5), 3);
    s.reduce(sum(3), wire(2), 3);
    s.copy(output(3), sum(3));
    s.finish(output(1), sum(1));
    const Step expected[] = {
        {.verb = Verb::send, .src = input(2), .chunk = 2, .peer = 1},
        {.verb = Verb::recv, .dst = wire(5), .chunk = 3, .peer = 2},
        {.verb = Verb::send, .src = wire(5), .chunk = 3, .peer = 3},
        {.verb = Verb::reduce, .sources = 3, .dst = sum(3), .src = wire(2), .chunk = 3},
        {.verb = Verb::copy, .dst = output(3), .src = sum(3), .chunk = 3},
        {.verb = Verb::copy, .flags = Step::finishes, .dst = output(1), .src = sum(1), .chunk = 1},
    };
    CHECK_EQ(s.steps.size(), std::size(expected));
    for (size_t i = 0; i < s.steps.size(); i++) CHECK(s.steps[i] == expected[i]);
    CHECK_EQ(s.wires, 6U);
}

static void long_ranges_take_several_steps() {
    Schedule s{.chunks = 1};
    s.reduce(sum(0), wire(1), 0);
    CHECK(s.steps.empty());
    s.reduce(sum(0), wire(1), 70000);
    CHECK_EQ(s.steps.size(), 2U);
    CHECK_EQ(s.steps[0].sources, 65535U);
    CHECK(s.steps[1].src == wire(65536));
    CHECK_EQ(s.steps[1].sources, 70000U - 65535U);
    CHECK_EQ(s.wires, 70001U);
}

int main() {
    const CMUnitTest tests[] = {
        QTEST(teams_go_round),
        QTEST(slots_know_their_kind_and_index),
        QTEST(steps_take_the_chunk_of_their_slots),
        QTEST(long_ranges_take_several_steps),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
