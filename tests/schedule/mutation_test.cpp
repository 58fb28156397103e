// Tests schedule/verify: in every schedule of a team of five, every change of one step is refused,
// unless the changed schedule provably means the same.
#include "tests/kit/qtest.hpp"

#include "tests/kit/forms.hpp"
#include "schedule_twin.hpp"

#include "schedule/verify.hpp"

#include <algorithm>
#include <cstring>

using namespace qccl;

namespace {

Result<Verified> verify_all(const Theorem &theorem, const std::vector<Schedule> &schedules) {
    return verify(theorem, [&](uint32_t rank) -> Result<Schedule> { return schedules[rank]; });
}

struct Mutant {
    Schedule schedule;
    bool is_equal = false; // it provably means the same
    // It receives before it sends: equal, or each rank waits for what has not been sent.
    bool may_wait = false;
    // It swaps the first two operands of a sum: the bits stay the same, and verify need not see it.
    bool commutes = false;
};

// Numbers the encodes in their order, so that a mutant is not refused for its numbering alone.
Schedule renumbered(Schedule s) {
    uint32_t next = 0;
    for (Step &step : s.steps)
        if (step.verb == Verb::encode) {
            if (!step.has(Step::common)) step.ordinal = next;
            next++;
        }
    return s;
}

// Returns whether exchanging steps i and i + 1 changes nothing: neither depends on the other, and
// they are not two messages of one queue.
bool are_independent(Schedule s, size_t i) {
    if (i + 1 == s.steps.size()) return false;
    const Dependencies dependencies = lower(s);
    for (const uint32_t earlier : dependencies.of(i + 1))
        if (earlier == i) return false;
    const Step &a = s.steps[i], &b = s.steps[i + 1];
    return computes(a.verb) || a.verb != b.verb || a.peer != b.peer;
}

// Returns whether steps i and i + 1 are the first two operands of one sum.
bool begins_a_sum(const Schedule &s, size_t i) {
    const Step &a = s.steps[i], &b = s.steps[i + 1];
    if (a.verb != Verb::reduce || b.verb != Verb::reduce || a.dst != b.dst) return false;
    return std::none_of(s.steps.begin(), s.steps.begin() + static_cast<ptrdiff_t>(i),
                        [&](const Step &step) { return step.dst == a.dst; });
}

// An author's first reduce into an accumulator stores, which is what copy does.
bool is_copy_by_definition(const Schedule &s, size_t i, const Step &changed) {
    Step copied = s.steps[i];
    const bool is_reduce = copied.verb == Verb::reduce && copied.sources == 1 && !s.is_placed &&
                           !copied.has(Step::as_encoded);
    copied.verb = Verb::copy;
    if (!is_reduce || changed != copied) return false;
    for (size_t k = 0; k < i; k++)
        if (s.steps[k].dst == copied.dst) return false;
    return true;
}

void add_changed(std::vector<Mutant> &mutants, const Schedule &s, size_t i, Step changed) {
    if (changed == s.steps[i]) return;
    Mutant mutant{s, is_copy_by_definition(s, i, changed)};
    mutant.schedule.steps[i] = changed;
    mutants.push_back(std::move(mutant));
}

void add_redirected(std::vector<Mutant> &mutants, const Schedule &s, size_t i, uint32_t P) {
    const Step &step = s.steps[i];
    const auto add = [&](auto change) {
        Step changed = step;
        change(changed);
        add_changed(mutants, s, i, changed);
    };
    if (!computes(step.verb))
        for (uint32_t peer = 0; peer < P; peer++) add([&](Step &c) { c.peer = peer; });
    for (uint32_t chunk = 0; chunk < s.chunks; chunk++) add([&](Step &c) { c.chunk = chunk; });
    for (Slot Step::*operand : {&Step::dst, &Step::src}) {
        if ((step.*operand).is(SlotKind::none)) continue;
        const uint32_t slots = (step.*operand).is(SlotKind::wire) ? s.wires : s.chunks;
        for (uint32_t index = 0; index < slots; index++)
            add([&](Step &c) { c.*operand = {(step.*operand).what(), index}; });
        for (const SlotKind kind :
             {SlotKind::input, SlotKind::output, SlotKind::accumulator, SlotKind::wire})
            add([&](Step &c) { c.*operand = {kind, (step.*operand).index}; });
        // Moves the whole step to another chunk, with its operands.
        for (uint32_t chunk = 0; chunk < s.chunks; chunk++)
            add([&](Step &c) {
                c.chunk = chunk;
                for (Slot *slot : {&c.dst, &c.src})
                    if (!slot->is(SlotKind::none) && !slot->is(SlotKind::wire))
                        *slot = {slot->what(), chunk};
            });
    }
    if (step.verb == Verb::reduce && step.sources > 1) add([](Step &c) { c.sources--; });
    if (s.is_placed) {
        add([](Step &c) { c.flags ^= Step::common; });
        if (step.has(Step::common)) add([&](Step &c) { c.peer = (c.peer + 1) % P; });
        if (step.has(Step::common)) add([](Step &c) { c.ordinal++; });
    }
    for (const Step::Flag flag : {Step::finishes, Step::as_encoded, Step::inner})
        add([&](Step &c) { c.flags ^= flag; });
    // Clearing Step::stays is never wrong, so it is no mutation.
    if (!step.has(Step::stays)) add([](Step &c) { c.flags |= Step::stays; });
    for (Verb verb = Verb::send; verb <= Verb::decode_add;
         verb = static_cast<Verb>(static_cast<int>(verb) + 1))
        add([&](Step &c) { c.verb = verb; });
}

std::vector<Mutant> mutants_of(const Schedule &s, uint32_t P) {
    std::vector<Mutant> mutants;
    for (size_t i = 0; i < s.steps.size(); i++) {
        const auto at = static_cast<ptrdiff_t>(i);
        Mutant dropped{s}, doubled{s}, swapped{s, are_independent(s, i)};
        dropped.schedule.steps.erase(dropped.schedule.steps.begin() + at);
        mutants.push_back({renumbered(dropped.schedule)});
        doubled.schedule.steps.insert(doubled.schedule.steps.begin() + at, s.steps[i]);
        mutants.push_back({renumbered(doubled.schedule)});
        if (i + 1 < s.steps.size() && s.steps[i] != s.steps[i + 1]) {
            swapped.may_wait = swapped.is_equal && s.steps[i].verb == Verb::send &&
                               s.steps[i + 1].verb == Verb::recv;
            swapped.commutes = begins_a_sum(s, i);
            std::swap(swapped.schedule.steps[i], swapped.schedule.steps[i + 1]);
            mutants.push_back(std::move(swapped));
        }
        add_redirected(mutants, s, i, P);
    }
    return mutants;
}

std::vector<std::vector<float>> outputs_of(const std::vector<Schedule> &schedules) {
    const auto P = static_cast<uint32_t>(schedules.size());
    ScheduleTwin twin(schedules, twin_inputs(P, schedules[0].chunks));
    CHECK(twin.run_in_order());
    std::vector<std::vector<float>> outputs;
    for (uint32_t rank = 0; rank < P; rank++) outputs.push_back(twin.outputs(rank));
    return outputs;
}

bool are_same_bits(const std::vector<std::vector<float>> &a,
                   const std::vector<std::vector<float>> &b) {
    for (size_t rank = 0; rank < a.size(); rank++)
        if (std::memcmp(a[rank].data(), b[rank].data(), a[rank].size() * sizeof(float)) != 0)
            return false;
    return true;
}

// All mutants of one rank are refused, except those that provably mean the same. These compute the
// same bits.
void check_mutants(const Theorem &theorem, const std::vector<Schedule> &schedules, uint32_t rank) {
    const auto expected = outputs_of(schedules);
    for (const Mutant &mutant : mutants_of(schedules[rank], theorem.ranks)) {
        auto changed = schedules;
        changed[rank] = mutant.schedule;
        const auto proof = verify_all(theorem, changed);
        if (mutant.commutes)
            CHECK(proof.is_ok() || !mutant.is_equal);
        else if (!proof && mutant.may_wait)
            CHECK(std::string(proof.error().text).find("waits for ever") != std::string::npos);
        else
            CHECK_EQ(proof.is_ok(), mutant.is_equal);
        if (proof)
            CHECK(are_same_bits(outputs_of(changed), expected));
        else
            CHECK(std::strlen(proof.error().text) > 0);
    }
}

} // namespace

static void every_mutation_is_refused() {
    constexpr uint32_t P = 5;
    for (const Algorithm &a : algorithms())
        for (const Collective collective : collectives_of(a))
            for (const ScheduleForm form : {ScheduleForm::author, ScheduleForm::placed}) {
                const Theorem theorem{collective, a.order({.size = P, .root = 1}), P, 1, a.own()};
                const auto schedules = make_all(form, a, collective, P, theorem.root);
                for (uint32_t rank = 0; rank < P; rank++) check_mutants(theorem, schedules, rank);
            }
}

static void every_mutation_with_exact_owners_is_refused() {
    constexpr uint32_t P = 5;
    for (const Algorithm &a : algorithms())
        for (const Collective collective : owned_collectives_of(a)) {
            const Theorem theorem{collective,       a.order({.size = P, .root = 1}), P, 1, a.own(),
                                  OwnerKeeps::exact};
            const auto schedules = make_all(ScheduleForm::placed, a, collective, P, theorem.root,
                                            nullptr, OwnerKeeps::exact);
            for (uint32_t rank = 0; rank < P; rank++) check_mutants(theorem, schedules, rank);
        }
}

static void check_hierarchies(const RankTopology &places) {
    for (const char *spec :
         {"hierarchy", "hierarchy:inner=ring,share=leader", "hierarchy:inner=halving,outer=halving",
          "hierarchy:inner=tree,outer=direct,share=leader", "hierarchy:outer=tree"})
        for (const Collective collective : collectives_of(algorithm_of(spec)))
            for (const ScheduleForm form : {ScheduleForm::author, ScheduleForm::placed}) {
                const Algorithm a = algorithm_of(spec);
                const Team team{.size = places.ranks(), .root = 1, .places = &places};
                const Theorem theorem{collective, a.order(team), team.size, team.root, a.own()};
                const auto schedules = make_all(form, a, collective, team.size, team.root, &places);
                for (uint32_t rank = 0; rank < team.size; rank++)
                    check_mutants(theorem, schedules, rank);
            }
}

static void every_mutation_of_a_hierarchy_is_refused() {
    check_hierarchies(places_on({0, 1, 0, 1, 0}));
}

// One host has two nodes; the other has a node with two ranks and one with a single rank.
static void every_mutation_of_three_tiers_is_refused() {
    check_hierarchies(RankTopology({{0, 0, 0}, {1, 0, 0}, {0, 1, 0}, {0, 1, 0}, {1, 1, 0}}));
}

int main() {
    const CMUnitTest tests[] = {
        QTEST(every_mutation_is_refused),
        QTEST(every_mutation_with_exact_owners_is_refused),
        QTEST(every_mutation_of_a_hierarchy_is_refused),
        QTEST(every_mutation_of_three_tiers_is_refused),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
