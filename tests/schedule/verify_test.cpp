// Tests lib/schedule/verify and check_races() of lib/schedule/verify_parts: every algorithm is
// proven for many team sizes, and wrong schedules are refused by name.
#include "tests/kit/qtest.hpp"

#include "schedule/schedule.hpp"
#include "schedule/verify.hpp"
#include "tests/kit/forms.hpp"

#include <bit>
#include <cmath>
#include <cstring>
#include <optional>

using namespace qccl;

namespace {

Result<Verified> verify_all(const Theorem &theorem, const std::vector<Schedule> &schedules) {
    return verify(theorem, [&](uint32_t rank) -> Result<Schedule> { return schedules[rank]; });
}

Result<Verified> verify_form(ScheduleForm form, const Algorithm &algorithm, Collective collective,
                             uint32_t P, uint32_t root, OwnerKeeps owner = OwnerKeeps::decoded) {
    const Theorem theorem{
        collective, algorithm.order({.size = P, .root = root}), P, root, algorithm.own(), owner};
    return verify(theorem, [&](uint32_t rank) -> Result<Schedule> {
        return make(form, algorithm, collective, {.size = P, .rank = rank, .root = root}, owner);
    });
}

std::string refusal(const Theorem &theorem, const std::vector<Schedule> &schedules) {
    const auto proof = verify_all(theorem, schedules);
    CHECK(!proof);
    return proof.error().text;
}

// Returns the predicted noise; nothing if there is no formula.
std::optional<NoiseMoments> predicted_noise(const Algorithm &a, Collective collective, double P) {
    const NoiseMoments once = NoiseMoments::of(1);
    const bool is_ring = a.name() == "ring";
    if (is_prefix(collective) || a.name() == "chain") return {};
    if (collective == Collective::all_gather || collective == Collective::broadcast ||
        collective == Collective::send)
        return once;
    const NoiseMoments others = once * ((P - 1) / P);
    if (collective == Collective::gather || collective == Collective::scatter ||
        collective == Collective::all_to_all)
        return others;
    if (a.name() == "halving") {
        if (!std::has_single_bit(static_cast<uint32_t>(P))) return {};
        const NoiseMoments sums{std::log2(P) / 2, (P - 1) / (2 * P), (P * P - 1) / (6 * P * P)};
        if (collective == Collective::all_reduce) return sums + once;
        return collective == Collective::reduce ? sums + others : sums;
    }
    if (a.name() == "doubling") {
        if (!std::has_single_bit(static_cast<uint32_t>(P))) return {};
        return NoiseMoments{std::log2(P), (P - 1) / P, (P * P - 1) / (3 * P * P)};
    }
    if (a.name() == "tree" || a.name() == "hierarchy") return {};
    if (a.own() == OwnInput::as_encoded) return NoiseMoments{1, 1 / P, 1 / (P * P)};
    const NoiseMoments sums =
        is_ring ? NoiseMoments{(P - 1) / 2, (P - 1) * (2 * P - 1) / (6 * P),
                               (P - 1) * (P - 1) / (4 * P)}
                : NoiseMoments{(P - 1) / P, (P - 1) / (P * P), (P - 1) / (P * P * P)};
    if (collective == Collective::reduce) return sums + others;
    return collective == Collective::reduce_scatter ? sums : sums + once;
}

} // namespace

static void every_algorithm_is_proven() {
    std::vector<uint32_t> sizes;
    for (uint32_t P = 1; P <= 64; P++) sizes.push_back(P);
    for (const uint32_t prime : {67U, 101U, 127U}) sizes.push_back(prime);
    for (const Algorithm &a : algorithms())
        for (const Collective collective : collectives_of(a))
            for (const uint32_t P : sizes)
                for (const ScheduleForm form : forms) {
                    const uint32_t root = row_of(collective).has_root ? P * 2 / 3 : 0;
                    const auto proof = verify_form(form, a, collective, P, root);
                    CHECK_OK(proof);
                    const bool has_codec = form != ScheduleForm::author && P > 1;
                    const Team team{.size = P, .root = root};
                    const NoiseMoments noise =
                        has_codec ? a.noise(collective, team) : NoiseMoments();
                    CHECK(is_close(proof->noise, noise));
                    if (const auto formula = predicted_noise(a, collective, P);
                        has_codec && formula)
                        CHECK(is_close(noise, *formula));
                    CHECK_EQ(a.rounds(collective, team), proof->rounds);
                }
}

static void every_rank_can_be_the_root() {
    for (const Algorithm &a : algorithms())
        for (const Collective collective : collectives_of(a))
            for (const uint32_t P : {1U, 2U, 3U, 6U, 13U})
                for (uint32_t root = 0; root < P && row_of(collective).has_root; root++)
                    for (const ScheduleForm form : forms) {
                        const auto proof = verify_form(form, a, collective, P, root);
                        CHECK_OK(proof);
                        CHECK_EQ(a.rounds(collective, {.size = P, .root = root}), proof->rounds);
                    }
}

// Nothing is encoded in an author's schedule, so both theorems hold for it.
static void owners_may_keep_exact_values() {
    const auto is_exact = OwnerKeeps::exact;
    for (const Algorithm &a : algorithms())
        for (const Collective collective : owned_collectives_of(a))
            for (uint32_t P = 1; P <= 33; P++)
                for (const ScheduleForm form : forms) {
                    const uint32_t root = row_of(collective).has_root ? P * 2 / 3 : 0;
                    const auto proof = verify_form(form, a, collective, P, root, is_exact);
                    CHECK_OK(proof);
                    const Team team{.size = P, .root = root};
                    const bool has_codec = form != ScheduleForm::author && P > 1;
                    const NoiseMoments noise =
                        has_codec ? a.noise(collective, team, is_exact) : NoiseMoments();
                    CHECK(is_close(proof->noise, noise));
                    const double part = row_of(collective).gathers ? (P - 1.0) / P : 1;
                    if (has_codec) CHECK(is_close(noise, NoiseMoments::of(1) * part));
                    CHECK_EQ(a.rounds(collective, team), proof->rounds);
                }
}

static void what_owners_keep_is_proven() {
    constexpr uint32_t P = 5, root = 3;
    for (const Algorithm &a : algorithms())
        for (const Collective collective : owned_collectives_of(a))
            for (const ScheduleForm form : {ScheduleForm::placed, ScheduleForm::joined}) {
                Theorem theorem{collective, a.order({.size = P, .root = root}), P, root, a.own()};
                auto schedules = make_all(form, a, collective, P, root, nullptr, OwnerKeeps::exact);
                const std::string exact = refusal(theorem, schedules);
                CHECK(exact.find("stores other bytes than rank") != std::string::npos);
                schedules = make_all(form, a, collective, P, root);
                theorem.owner = OwnerKeeps::exact;
                const std::string decoded = refusal(theorem, schedules);
                CHECK(
                    decoded.find("keeps its own values as encoded, where they have to be exact") !=
                    std::string::npos);
            }
}

static void a_barrier_hears_of_everybody() {
    for (const uint32_t P : {1U, 2U, 3U, 17U}) {
        const auto proof =
            verify_form(ScheduleForm::joined, algorithm_of("oneshot"), Collective::barrier, P, 0);
        CHECK_OK(proof);
        CHECK_EQ(proof->rounds, P == 1 ? 0U : 1U);
        CHECK_OK(
            verify_form(ScheduleForm::joined, algorithm_of("doubling"), Collective::barrier, P, 0));
    }
}

// Rank 0 encodes the sum twice: once as its own encode, which rank 2 receives, and once as the
// encode that it has in common with rank 1. The noise of the two differs, whatever their ordinals
// are.
static void own_and_common_encodes_are_not_the_same() {
    const auto sections = parse("schedule rank 0 of 3 root 0 chunks 1 outbox 3 wires 5 placed\n"
                                "encode wire(0) <- input(0)\n"
                                "send wire(0) -> 1 chunk 0\n"
                                "recv wire(3) <- 1 chunk 0\n"
                                "recv wire(4) <- 2 chunk 0\n"
                                "decode sum(0) <- wire(0)\n"
                                "decode_add sum(0) += wire(3)\n"
                                "decode_add sum(0) += wire(4)\n"
                                "encode wire(1) <- sum(0) #2 finishes\n"
                                "send wire(1) -> 2 chunk 0\n"
                                "encode wire(2) <- sum(0) #1 common 0 finishes stays\n"
                                "decode output(0) <- wire(2)\n"
                                "schedule rank 1 of 3 root 0 chunks 1 outbox 3 wires 5 placed\n"
                                "encode wire(0) <- input(0)\n"
                                "send wire(0) -> 0 chunk 0\n"
                                "recv wire(3) <- 0 chunk 0\n"
                                "recv wire(4) <- 2 chunk 0\n"
                                "decode sum(0) <- wire(3)\n"
                                "decode_add sum(0) += wire(0)\n"
                                "decode_add sum(0) += wire(4)\n"
                                "encode wire(1) <- sum(0) #1 common 0 finishes stays\n"
                                "decode output(0) <- wire(1)\n"
                                "schedule rank 2 of 3 root 0 chunks 1 outbox 3 wires 5 placed\n"
                                "encode wire(0) <- input(0)\n"
                                "send wire(0) -> 0 chunk 0\n"
                                "send wire(0) -> 1 chunk 0\n"
                                "recv wire(3) <- 0 chunk 0\n"
                                "decode output(0) <- wire(3)\n");
    CHECK_OK(sections);
    std::vector<Schedule> schedules;
    for (const Section &section : *sections) schedules.push_back(section.schedule);
    const std::string text =
        refusal({Collective::all_reduce, by_rank, 3, 0, OwnInput::as_encoded}, schedules);
    CHECK(text.find("stores other bytes than rank 0 did") != std::string::npos);
}

static void rounds_are_counted() {
    const auto rounds = [](const char *name, Collective collective) {
        const auto proof = verify_form(ScheduleForm::joined, algorithm_of(name), collective, 7, 3);
        CHECK_OK(proof);
        return proof->rounds;
    };
    CHECK_EQ(rounds("ring", Collective::all_reduce), 12U);
    CHECK_EQ(rounds("ring", Collective::broadcast), 6U);
    CHECK_EQ(rounds("direct", Collective::all_reduce), 2U);
    CHECK_EQ(rounds("direct", Collective::reduce_scatter), 1U);
    CHECK_EQ(rounds("oneshot", Collective::all_reduce), 1U);
}

static void an_order_that_is_not_the_contracts_is_refused() {
    const auto ring =
        make_all(ScheduleForm::placed, algorithm_of("ring"), Collective::all_reduce, 4);
    const std::string text = refusal({Collective::all_reduce, by_rank, 4, 0}, ring);
    CHECK(text.find("not the contract's order") != std::string::npos);
    const auto direct =
        make_all(ScheduleForm::placed, algorithm_of("direct"), Collective::all_reduce, 4);
    CHECK(!verify_all({Collective::all_reduce, by_ring, 4, 0}, direct));
    CHECK(!verify_all({Collective::reduce_scatter, by_rank, 4, 0}, direct));
}

static void an_own_input_that_enters_otherwise_is_refused() {
    for (const ScheduleForm form : forms) {
        const auto exact = make_all(form, algorithm_of("direct"), Collective::reduce_scatter, 3);
        const auto encoded = make_all(form, algorithm_of("oneshot"), Collective::reduce_scatter, 3);
        Theorem theorem{Collective::reduce_scatter, by_rank, 3, 0};
        CHECK_OK(verify_all(theorem, exact));
        CHECK(refusal(theorem, encoded).find("has to be exact") != std::string::npos);
        theorem.own = OwnInput::as_encoded;
        CHECK_OK(verify_all(theorem, encoded));
        CHECK(refusal(theorem, exact).find("has to be as encoded") != std::string::npos);
    }
}

// Two ranks have one wire slot each, and each rank waits for the other to read the slot that it
// needs next.
static void waiting_in_a_cycle_is_refused() {
    auto ring = make_all(ScheduleForm::author, algorithm_of("ring"), Collective::all_reduce, 2);
    for (Schedule &s : ring) {
        s.outbox = 1;
        s = fuse(*place_codec(s)).schedule;
    }
    const std::string text = refusal({Collective::all_reduce, by_ring, 2, 0}, ring);
    CHECK_EQ(
        text,
        "rank 0, step 3 (decode sum(1) <- wire(1) joins releases): waits for ever for a wire slot");

    std::vector<Schedule> shy(2);
    for (uint32_t rank = 0; rank < 2; rank++) {
        Schedule &s = shy[rank];
        s = {.chunks = 2, .outbox = 1};
        s.recv(1 - rank, output(1 - rank));
        s.send(1 - rank, input(rank));
        s.copy(output(rank), input(rank));
    }
    CHECK_EQ(refusal({Collective::all_gather, by_rank, 2, 0}, shy),
             "rank 0, step 0 (recv output(1) <- 1): waits for ever for a message");
}

static void ranks_have_to_agree() {
    const Theorem theorem{Collective::all_reduce, by_rank, 3, 0};
    const auto schedules =
        make_all(ScheduleForm::placed, algorithm_of("direct"), Collective::all_reduce, 3);
    CHECK_OK(verify_all(theorem, schedules));
    const auto with = [&](void (*change)(Schedule &)) {
        auto changed = schedules;
        change(changed[2]);
        return refusal(theorem, changed);
    };
    CHECK_EQ(with([](Schedule &s) { s.chunks++; }),
             "rank 2: the schedule has another number of chunks than rank 0");
    CHECK_EQ(with([](Schedule &s) { s.outbox--; }),
             "rank 2: the schedule has another outbox than rank 0");
    CHECK_EQ(with([](Schedule &s) { s.is_placed = false; }),
             "rank 2: the schedule differs from rank 0 in being placed");
    CHECK(!verify({Collective::broadcast, by_rank, 3, 3}, nullptr));
    CHECK(!verify({Collective::broadcast, by_rank, 0, 0}, nullptr));
}

// A rank that keeps its exact sum has other bytes than the encoding that it sent.
static void an_owner_that_keeps_its_exact_sum_is_refused() {
    auto schedules =
        make_all(ScheduleForm::placed, algorithm_of("direct"), Collective::all_reduce, 3);
    for (Step &step : schedules[1].steps)
        if (step.verb == Verb::decode && step.dst == output(1))
            step = {.verb = Verb::copy,
                    .flags = Step::finishes,
                    .dst = output(1),
                    .src = sum(1),
                    .chunk = 1};
    const std::string text = refusal({Collective::all_reduce, by_rank, 3, 0}, schedules);
    CHECK(text.find("stores other bytes than rank") != std::string::npos);
}

// Because of noise, two encodes of the same value need not give the same bytes.
static void sending_two_encodings_of_one_value_is_refused() {
    std::vector<Schedule> schedules(3);
    for (uint32_t rank = 0; rank < 3; rank++) {
        Schedule &s = schedules[rank];
        s = {.chunks = 1, .outbox = 2, .wires = 3, .is_placed = true};
        if (rank == 0) {
            for (uint32_t i = 0; i < 2; i++) {
                s.steps.push_back(
                    {.verb = Verb::encode, .dst = wire(i), .src = input(0), .ordinal = i});
                s.steps.push_back({.verb = Verb::send, .src = wire(i), .peer = i + 1});
            }
            s.steps.push_back({.verb = Verb::decode, .dst = output(0), .src = wire(0)});
        } else {
            s.steps.push_back({.verb = Verb::recv, .dst = wire(2)});
            s.steps.push_back({.verb = Verb::decode, .dst = output(0), .src = wire(2)});
        }
    }
    CHECK_EQ(refusal({Collective::broadcast, by_rank, 3, 0}, schedules),
             "rank 2, step 1 (decode output(0) <- wire(2) releases): stores other bytes than rank "
             "0 did");
}

// The chunk is encoded more often than the byte can count that holds this number in schedules.
static void encoding_a_chunk_too_often_is_refused() {
    constexpr uint32_t most = 255;
    std::vector<Schedule> schedules(2);
    for (uint32_t rank = 0; rank < 2; rank++) {
        Schedule &s = schedules[rank];
        s = {.chunks = 1, .outbox = most + 1, .wires = 2 * (most + 1), .is_placed = true};
        for (uint32_t i = 0; i <= most; i++) {
            if (rank == 1) {
                s.steps.push_back({.verb = Verb::recv, .dst = wire(most + 1 + i)});
                continue;
            }
            s.steps.push_back(
                {.verb = Verb::encode, .dst = wire(i), .src = input(0), .ordinal = i});
            s.steps.push_back({.verb = Verb::send, .src = wire(i), .peer = 1});
        }
    }
    CHECK(refusal({Collective::broadcast, by_rank, 2, 0}, schedules)
              .find("encodes a chunk too often") != std::string::npos);
}

// Joined steps are checked too: they must compute, and on one chunk.
static void wrong_joins_are_refused() {
    const Theorem theorem{Collective::all_reduce, by_rank, 3, 0};
    const auto schedules =
        make_all(ScheduleForm::joined, algorithm_of("direct"), Collective::all_reduce, 3);
    CHECK_OK(verify_all(theorem, schedules));
    const auto &steps = schedules[0].steps;
    for (size_t i = 0; i < steps.size(); i++) {
        const bool may_join = i + 1 < steps.size() && computes(steps[i].verb) &&
                              computes(steps[i + 1].verb) && steps[i].chunk == steps[i + 1].chunk;
        if (may_join) continue;
        auto changed = schedules;
        changed[0].steps[i].flags |= Step::joins_next;
        CHECK(refusal(theorem, changed).find("joins") != std::string::npos);
    }
}

// ---- Races

namespace {

Dependencies without(const Dependencies &all, size_t edge) {
    Dependencies fewer = all;
    fewer.earlier.erase(fewer.earlier.begin() + static_cast<ptrdiff_t>(edge));
    for (uint32_t &first : fewer.first)
        if (first > edge) first--;
    return fewer;
}

bool leads(const Dependencies &dependencies, uint32_t from, uint32_t to) {
    for (const uint32_t earlier : dependencies.of(to))
        if (earlier == from || (earlier > from && leads(dependencies, from, earlier))) return true;
    return false;
}

} // namespace

// Every wait that lower derives is needed, unless other waits imply it.
static void a_missing_wait_is_a_race() {
    for (const Algorithm &a : algorithms())
        for (const Collective collective : collectives_of(a))
            for (const ScheduleForm form : forms) {
                Schedule s = make(form, a, collective, {.size = 5, .rank = 3, .root = 3});
                const Dependencies all = lower(s);
                CHECK_OK(check_races(s, all, 0));
                for (uint32_t step = 0; step < s.steps.size(); step++)
                    for (uint32_t edge = all.first[step]; edge < all.first[step + 1]; edge++) {
                        const Dependencies fewer = without(all, edge);
                        CHECK_EQ(check_races(s, fewer, 0).is_ok(),
                                 leads(fewer, all.earlier[edge], step));
                    }
            }
}

int main() {
    const CMUnitTest tests[] = {
        QTEST(every_algorithm_is_proven),
        QTEST(every_rank_can_be_the_root),
        QTEST(owners_may_keep_exact_values),
        QTEST(what_owners_keep_is_proven),
        QTEST(a_barrier_hears_of_everybody),
        QTEST(own_and_common_encodes_are_not_the_same),
        QTEST(rounds_are_counted),
        QTEST(an_order_that_is_not_the_contracts_is_refused),
        QTEST(an_own_input_that_enters_otherwise_is_refused),
        QTEST(waiting_in_a_cycle_is_refused),
        QTEST(ranks_have_to_agree),
        QTEST(an_owner_that_keeps_its_exact_sum_is_refused),
        QTEST(sending_two_encodings_of_one_value_is_refused),
        QTEST(encoding_a_chunk_too_often_is_refused),
        QTEST(wrong_joins_are_refused),
        QTEST(a_missing_wait_is_a_race),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
