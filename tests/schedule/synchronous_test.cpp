// Tests verify_synchronous() of lib/schedule/verify: every algorithm finishes if sends are
// synchronous, and a schedule that does not is refused with the step that waits for ever.
#include "tests/kit/qtest.hpp"

#include "tests/kit/forms.hpp"
#include "schedule/verify.hpp"

using namespace qccl;

namespace {

Result<SynchronousProof> prove(const std::vector<Schedule> &schedules) {
    return verify_synchronous(static_cast<uint32_t>(schedules.size()),
                              [&](uint32_t rank) -> Result<Schedule> { return schedules[rank]; });
}

uint32_t in_flight(const char *algorithm, Collective collective, uint32_t ranks,
                   const RankTopology *places = nullptr) {
    const auto proof = prove(
        make_all(ScheduleForm::joined, algorithm_of(algorithm), collective, ranks, 0, places));
    CHECK_OK(proof);
    return proof->in_flight;
}

// Returns an all-gather of two ranks in which each rank sends the received bytes back before it
// receives its own bytes again, all in one wire slot.
std::vector<Schedule> exchange_in_one_slot() {
    std::vector<Schedule> both(2);
    for (uint32_t rank = 0; rank < 2; rank++) {
        const uint32_t peer = 1 - rank;
        Schedule &s = both[rank];
        s = {.chunks = 2, .outbox = 1, .wires = 2, .is_placed = true};
        const auto add = [&](Verb verb, Slot dst, Slot src, uint32_t chunk) {
            s.steps.push_back({.verb = verb, .dst = dst, .src = src, .chunk = chunk});
            if (!computes(verb)) s.steps.back().peer = peer;
        };
        add(Verb::encode, wire(0), input(rank), rank);
        add(Verb::send, {}, wire(0), rank);
        add(Verb::recv, wire(1), {}, peer);
        add(Verb::decode, output(peer), wire(1), peer);
        add(Verb::send, {}, wire(1), peer);
        add(Verb::recv, wire(1), {}, rank);
        add(Verb::decode, output(rank), wire(1), rank);
    }
    return both;
}

} // namespace

static void every_algorithm_comes_to_its_end() {
    std::vector<uint32_t> sizes;
    for (uint32_t P = 1; P <= 33; P++) sizes.push_back(P);
    for (const uint32_t P : {64U, 67U, 127U}) sizes.push_back(P);
    for (const Algorithm &a : algorithms())
        for (const Collective collective : collectives_of(a))
            for (const uint32_t P : sizes)
                for (const ScheduleForm form : forms) {
                    const uint32_t root = row_of(collective).has_root ? P * 2 / 3 : 0;
                    const auto schedules = make_all(form, a, collective, P, root);
                    const auto proof = prove(schedules);
                    CHECK_OK(proof);
                    uint64_t sends = 0;
                    for (const Schedule &s : schedules)
                        for (const Step &step : s.steps) sends += step.verb == Verb::send;
                    CHECK_EQ(proof->messages, sends);
                }
}

static void hierarchies_come_to_their_end() {
    for (const auto &hosts : {std::vector<uint32_t>{0, 0, 1, 1},
                              {0, 1, 1, 2, 2, 2},
                              {0, 1, 2, 0, 1, 2, 0},
                              {0, 0, 0, 0, 1, 2, 3, 3, 3}}) {
        const RankTopology places = places_on(hosts);
        for (const char *const outer : {"ring", "halving", "direct", "tree"})
            for (const char *const share : {"every", "leader"}) {
                const Algorithm a =
                    algorithm_of(std::string("hierarchy:outer=") + outer + ",share=" + share);
                for (const Collective collective : collectives_of(a))
                    for (const ScheduleForm form : forms)
                        CHECK_OK(prove(make_all(form, a, collective, places.ranks(), 0, &places)));
            }
    }
}

// Trees work with blocking sends. In a ring every rank sends before it receives. If every rank
// exchanges with all others at once, all these messages are in flight.
static void as_many_tasks_as_needed_are_in_flight() {
    CHECK_EQ(in_flight("tree", Collective::broadcast, 16), 1U);
    CHECK_EQ(in_flight("tree", Collective::all_reduce, 16), 1U);
    CHECK_EQ(in_flight("ring", Collective::all_reduce, 2), 2U);
    CHECK_EQ(in_flight("ring", Collective::all_reduce, 16), 3U);
    CHECK_EQ(in_flight("ring", Collective::broadcast, 16), 1U);
    CHECK_EQ(in_flight("direct", Collective::all_gather, 16), 30U);
    CHECK_EQ(in_flight("direct", Collective::all_gather, 100), 198U);
    CHECK_EQ(in_flight("oneshot", Collective::all_reduce, 9), 9U);
    CHECK_EQ(in_flight("doubling", Collective::all_reduce, 16), 2U);
}

static void what_waits_only_where_sends_are_synchronous_is_refused() {
    const auto both = exchange_in_one_slot();
    CHECK_OK(verify({Collective::all_gather, by_rank, 2, 0},
                    [&](uint32_t rank) -> Result<Schedule> { return both[rank]; }));
    const auto proof = prove(both);
    CHECK(!proof);
    CHECK_EQ(
        std::string(proof.error().text),
        "rank 0, step 4 (send wire(1) -> 1 chunk 1 #1 releases): waits for ever where sends are "
        "synchronous: rank 1 comes to its step 5 (recv wire(1) <- 0 chunk 1 #1) only after its "
        "step 4 (send wire(1) -> 0 chunk 0 #1 releases), which waits for its receive");
}

static void a_receive_without_a_send_is_refused() {
    std::vector<Schedule> one_sided(2);
    for (Schedule &s : one_sided) s.chunks = 2;
    one_sided[0].recv(1, output(1));
    const auto proof = prove(one_sided);
    CHECK(!proof);
    CHECK_EQ(std::string(proof.error().text),
             "rank 0, step 0 (recv output(1) <- 1): has no other side");
}

static void a_wire_slot_that_is_never_read_is_refused() {
    auto ring = make_all(ScheduleForm::author, algorithm_of("ring"), Collective::all_reduce, 2);
    for (Schedule &s : ring) {
        s.outbox = 1;
        s = fuse(*place_codec(s)).schedule;
    }
    const auto proof = prove(ring);
    CHECK(!proof);
    CHECK(std::string(proof.error().text).find("waits for ever for a wire slot") !=
          std::string::npos);
}

int main() {
    const CMUnitTest tests[] = {
        QTEST(every_algorithm_comes_to_its_end),
        QTEST(hierarchies_come_to_their_end),
        QTEST(as_many_tasks_as_needed_are_in_flight),
        QTEST(what_waits_only_where_sends_are_synchronous_is_refused),
        QTEST(a_receive_without_a_send_is_refused),
        QTEST(a_wire_slot_that_is_never_read_is_refused),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
