// Tests lib/schedule/lower: steps wait exactly as their slots require, no more and no less.
#include "tests/kit/qtest.hpp"

#include "tests/kit/forms.hpp"

#include "schedule/lower.hpp"

#include <algorithm>
#include <random>

using namespace qccl;

namespace {

std::vector<uint32_t> waits(const Dependencies &dependencies, size_t step) {
    const auto of = dependencies.of(step);
    return {of.begin(), of.end()};
}

using Matrix = std::vector<std::vector<bool>>;

// The slow twin takes every pair of steps that touch the same place, at least one of them writing,
// and the transitive closure.
bool touches(const Step &step, Slot slot, bool writes) {
    const auto is_same = [&](Slot other) {
        const bool is_buffer = slot.is(SlotKind::input) || slot.is(SlotKind::output);
        const bool is_other_buffer = other.is(SlotKind::input) || other.is(SlotKind::output);
        return is_buffer && is_other_buffer ? slot.index == other.index : slot == other;
    };
    if (step.verb != Verb::send && is_same(step.dst)) return true;
    for (uint32_t i = 0; !writes && step.verb != Verb::recv && i < step.sources; i++)
        if (is_same(step.src.after(i))) return true;
    return false;
}

bool conflict(const Step &a, const Step &b) {
    if (a.verb != Verb::send && touches(b, a.dst, false)) return true;
    return b.verb != Verb::send && touches(a, b.dst, false);
}

Matrix closure(size_t steps, auto has_edge) {
    Matrix before(steps, std::vector<bool>(steps));
    for (size_t i = 0; i < steps; i++)
        for (size_t k = 0; k < i; k++) {
            if (!has_edge(k, i)) continue;
            before[i][k] = true;
            for (size_t j = 0; j < k; j++)
                if (before[k][j]) before[i][j] = true;
        }
    return before;
}

void check_against_twin(Schedule s) {
    const Dependencies dependencies = lower(s);
    CHECK_EQ(dependencies.steps(), s.steps.size());
    const Matrix slow = closure(
        s.steps.size(), [&](size_t k, size_t i) { return conflict(s.steps[k], s.steps[i]); });
    const Matrix fast = closure(s.steps.size(), [&](size_t k, size_t i) {
        const auto of = dependencies.of(i);
        return std::binary_search(of.begin(), of.end(), k);
    });
    CHECK(slow == fast);
}

} // namespace

static void slots_make_steps_wait() {
    Schedule s{.chunks = 2};
    s.recv(1, wire(0), 0);       // 0
    s.reduce(sum(0), input(0));  // 1
    s.reduce(sum(0), wire(0));   // 2 reads what 0 and 1 wrote
    s.copy(output(0), sum(0));   // 3 reads what 2 wrote; overwrites what 1 read, but 2 waits for 1
    s.recv(1, wire(0), 0);       // 4 overwrites what 2 read
    s.send(1, input(1));         // 5
    s.send(2, output(0));        // 6
    s.copy(output(0), input(1)); // 7 overwrites what 6 read
    const Dependencies d = lower(s);
    const std::vector<std::vector<uint32_t>> expected{{}, {}, {0, 1}, {2}, {2}, {}, {3}, {6}};
    for (size_t i = 0; i < s.steps.size(); i++) CHECK(waits(d, i) == expected[i]);
}

static void input_and_output_are_one_place() {
    Schedule s{.chunks = 2};
    s.send(1, input(0));
    s.recv(1, output(0));
    s.recv(1, output(1));
    const Dependencies d = lower(s);
    CHECK((waits(d, 1) == std::vector<uint32_t>{0}));
    CHECK(waits(d, 2).empty());
}

static void waits_are_those_of_the_twin() {
    for (const Algorithm &a : algorithms())
        for (const Collective collective : collectives_of(a))
            for (const ScheduleForm form : forms)
                for (uint32_t rank = 0; rank < 4; rank++)
                    check_against_twin(
                        make(form, a, collective, {.size = 4, .rank = rank, .root = 1}));
}

static void waits_of_random_schedules_are_those_of_the_twin() {
    std::mt19937 random(7);
    const auto slot = [&](bool writes) -> Slot {
        const auto kind = static_cast<SlotKind>(random() % 4 + 1);
        if (writes && kind == SlotKind::input) return output(static_cast<uint32_t>(random() % 3));
        return {kind, static_cast<uint32_t>(random() % 3)};
    };
    for (uint32_t round = 0; round < 500; round++) {
        Schedule s{.chunks = 8, .wires = 8};
        for (uint32_t i = 0; i < 40; i++) {
            Step step{.verb = static_cast<Verb>(random() % 7)};
            if (step.verb != Verb::send) step.dst = slot(true);
            if (step.verb != Verb::recv) step.src = slot(false);
            if (step.verb == Verb::reduce) step.sources = static_cast<uint16_t>(1 + random() % 3);
            s.steps.push_back(step);
        }
        check_against_twin(s);
    }
}

static void messages_are_numbered_by_peer_and_direction() {
    Schedule s{.chunks = 4};
    for (const uint32_t peer : {1U, 2U, 1U, 1U}) s.send(peer, input(0));
    for (const uint32_t peer : {2U, 2U, 1U}) s.recv(peer, output(peer));
    lower(s);
    const uint32_t expected[] = {0, 0, 1, 2, 0, 1, 0};
    for (size_t i = 0; i < s.steps.size(); i++) CHECK_EQ(s.steps[i].ordinal, expected[i]);
}

// Every value of a wire slot has exactly one last reader, and no read comes after it.
static void last_readers_are_marked() {
    for (const Algorithm &a : algorithms())
        for (const ScheduleForm form : {ScheduleForm::placed, ScheduleForm::joined}) {
            if (!a.has(Collective::all_reduce)) continue;
            Schedule s = make(form, a, Collective::all_reduce, {.size = 5, .rank = 2});
            lower(s);
            std::vector<bool> holds(s.wires);
            for (const Step &step : s.steps) {
                if (step.verb != Verb::recv && step.src.is(SlotKind::wire)) {
                    CHECK(holds[step.src.index]);
                    holds[step.src.index] = !step.has(Step::releases);
                } else {
                    CHECK(!step.has(Step::releases));
                }
                if (step.dst.is(SlotKind::wire)) {
                    CHECK(!holds[step.dst.index]);
                    holds[step.dst.index] = true;
                }
            }
            for (const bool held : holds) CHECK(!held);
        }
}

static void lowering_again_changes_nothing() {
    Schedule once = make(ScheduleForm::joined, algorithm_of("ring"), Collective::all_reduce,
                         {.size = 4, .rank = 1});
    const Dependencies first = lower(once);
    Schedule twice = once;
    CHECK(lower(twice) == first);
    CHECK(twice == once);
}

int main() {
    const CMUnitTest tests[] = {
        QTEST(slots_make_steps_wait),
        QTEST(input_and_output_are_one_place),
        QTEST(waits_are_those_of_the_twin),
        QTEST(waits_of_random_schedules_are_those_of_the_twin),
        QTEST(messages_are_numbered_by_peer_and_direction),
        QTEST(last_readers_are_marked),
        QTEST(lowering_again_changes_nothing),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
