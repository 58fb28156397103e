// Tests coll/ring with several rings at once: every schedule passes verify(), and each ring carries
// its share.
#include "tests/kit/qtest.hpp"

#include "tests/kit/forms.hpp"

#include "schedule/verify.hpp"

#include <cmath>
#include <map>
#include <utility>

using namespace qccl;

namespace {

// Returns rings of steps 1, 2, ... over ranks that are all linked; the rings have no link in
// common. Every step must be coprime to `ranks`.
RingOrders stepping(uint32_t ranks, uint32_t rings) {
    RingOrders orders(rings);
    for (uint32_t step = 1; step <= rings; step++)
        for (uint32_t i = 0; i < ranks; i++) orders[step - 1].push_back(i * step % ranks);
    return orders;
}

const Algorithm by_all = algorithm_of("ring:rings=all");

void check(Collective collective, const RingOrders &rings, uint32_t root) {
    const RankTopology places(std::vector<RankLocation>(rings[0].size()), rings);
    const Team team{.size = places.ranks(), .root = root, .places = &places};
    for (const ScheduleForm form : forms) {
        const auto proof = verify({collective, by_all.order(team), team.size, root, by_all.own()},
                                  [&](uint32_t rank) -> Result<Schedule> {
                                      Team mine = team;
                                      mine.rank = rank;
                                      return make(form, by_all, collective, mine);
                                  });
        CHECK_OK(proof);
        CHECK_EQ(proof->rounds, by_all.rounds(collective, team));
        const NoiseMoments noise =
            form == ScheduleForm::author ? NoiseMoments() : by_all.noise(collective, team);
        CHECK(is_close(proof->noise, noise));
    }
}

// By pair of ranks: how many values the first sends to the second in an all-reduce of one value.
using Loads = std::map<std::pair<uint32_t, uint32_t>, double>;
Loads loads(const char *spec, const RankTopology &places) {
    Loads found;
    for (uint32_t rank = 0; rank < places.ranks(); rank++) {
        const Schedule s = make(ScheduleForm::author, algorithm_of(spec), Collective::all_reduce,
                                {.size = places.ranks(), .rank = rank, .places = &places});
        for (const Step &step : s.steps)
            if (step.verb == Verb::send) found[{rank, step.peer}] += 1.0 / s.chunks;
    }
    return found;
}

} // namespace

static void several_rings_are_proven() {
    for (const auto &[ranks, most] : {std::pair(2U, 1U), {3U, 2U}, {5U, 4U}, {7U, 6U}, {11U, 3U}})
        for (uint32_t rings = 1; rings <= most; rings++)
            for (const Collective collective : collectives_of(by_all))
                for (uint32_t root = 0; root < ranks; root++) {
                    if (root != 0 && !row_of(collective).has_root) break;
                    check(collective, stepping(ranks, rings), root);
                }
    // More rings than ranks; some of them use the same links.
    for (const Collective collective : collectives_of(by_all))
        check(collective, {{0, 1, 2}, {0, 2, 1}, {0, 1, 2}, {0, 1, 2}, {0, 2, 1}}, 0);
}

static void every_link_has_an_equal_share() {
    const RankTopology places(std::vector<RankLocation>(7), stepping(7, 6));
    const Loads one = loads("ring", places), all = loads("ring:rings=all", places);
    CHECK_EQ(one.size(), 7U);
    CHECK_EQ(all.size(), 42U);
    for (const auto &[pair, load] : one) CHECK(std::abs(load - 12.0 / 7) < 1e-9);
    for (const auto &[pair, load] : all) CHECK(std::abs(load - 12.0 / 7 / 6) < 1e-9);
}

// Without places, or with only one ring, rings=all is the same as the first ring.
static void one_ring_is_all() {
    const RankTopology places(std::vector<RankLocation>(4), {{0, 2, 1, 3}});
    for (const RankTopology *const at : {static_cast<const RankTopology *>(nullptr), &places})
        for (const Collective collective : collectives_of(by_all))
            CHECK(make_all(ScheduleForm::joined, by_all, collective, 4, 0, at) ==
                  make_all(ScheduleForm::joined, algorithm_of("ring"), collective, 4, 0, at));
}

static void teams_with_several_rings_have_one_algorithm_more() {
    const RankTopology one(std::vector<RankLocation>(3), {{0, 1, 2}}),
        two(std::vector<RankLocation>(3), {{0, 1, 2}, {0, 2, 1}});
    CHECK_EQ(algorithms_for({.size = 3}).size(), algorithms().size());
    CHECK_EQ(algorithms_for({.size = 3, .places = &one}).size(), algorithms().size());
    CHECK(algorithms_for({.size = 3, .places = &two}).back() == by_all);
}

int main() {
    const CMUnitTest tests[] = {
        QTEST(several_rings_are_proven),
        QTEST(every_link_has_an_equal_share),
        QTEST(one_ring_is_all),
        QTEST(teams_with_several_rings_have_one_algorithm_more),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
