// coll/ring: several rings at once. Every schedule is proven, and each ring carries its share.
#include "qtest.hpp"

#include "forms.hpp"

#include "schedule/verify.hpp"

#include <cmath>
#include <map>
#include <utility>

using namespace qccl;

namespace {

// Of ranks that are all linked: rings of steps 1, 2, ..., which have no link in common. `ranks` has
// no factor below `rings`.
RingOrders stepping(uint32_t ranks, uint32_t rings) {
    RingOrders orders(rings);
    for (uint32_t step = 1; step <= rings; step++)
        for (uint32_t i = 0; i < ranks; i++) orders[step - 1].push_back(i * step % ranks);
    return orders;
}

const Algorithm by_all = algorithm_of("ring:rings=all");

void check(Collective collective, const RingOrders &rings, uint32_t root) {
    const Places places(std::vector<Whereabouts>(rings[0].size()), rings);
    const Team team{.size = places.ranks(), .root = root, .places = &places};
    for (const Form form : forms) {
        const auto proof = verify({collective, by_all.order(team), team.size, root, by_all.own()},
                                  [&](uint32_t rank) -> Result<Schedule> {
                                      Team mine = team;
                                      mine.rank = rank;
                                      return make(form, by_all, collective, mine);
                                  });
        CHECK_OK(proof);
        CHECK_EQ(proof->rounds, by_all.rounds(collective, team));
        const double noise = form == Form::author ? 0 : by_all.noise(collective, team);
        CHECK(std::abs(proof->noise - noise) < 1e-9 * (1 + noise));
    }
}

// Values that go from a rank to another in an all-reduce of 1, by pair.
using Loads = std::map<std::pair<uint32_t, uint32_t>, double>;
Loads loads(const char *spec, const Places &places) {
    Loads found;
    for (uint32_t rank = 0; rank < places.ranks(); rank++) {
        const Schedule s = make(Form::author, algorithm_of(spec), Collective::all_reduce,
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
            for (const Collective collective : moving_collectives)
                for (uint32_t root = 0; root < ranks; root++) {
                    if (root != 0 && collective != Collective::broadcast) break;
                    check(collective, stepping(ranks, rings), root);
                }
    // More rings than ranks, of which some use the same links.
    for (const Collective collective : moving_collectives)
        check(collective, {{0, 1, 2}, {0, 2, 1}, {0, 1, 2}, {0, 1, 2}, {0, 2, 1}}, 0);
}

static void every_link_has_an_equal_share() {
    const Places places(std::vector<Whereabouts>(7), stepping(7, 6));
    const Loads one = loads("ring", places), all = loads("ring:rings=all", places);
    CHECK_EQ(one.size(), 7U);
    CHECK_EQ(all.size(), 42U);
    for (const auto &[pair, load] : one) CHECK(std::abs(load - 12.0 / 7) < 1e-9);
    for (const auto &[pair, load] : all) CHECK(std::abs(load - 12.0 / 7 / 6) < 1e-9);
}

// Without places, and with one ring, all rings are the first.
static void one_ring_is_all() {
    const Places places(std::vector<Whereabouts>(4), {{0, 2, 1, 3}});
    for (const Places *const at : {static_cast<const Places *>(nullptr), &places})
        for (const Collective collective : moving_collectives)
            CHECK(make_all(Form::joined, by_all, collective, 4, 0, at) ==
                  make_all(Form::joined, algorithm_of("ring"), collective, 4, 0, at));
}

static void teams_with_several_rings_have_one_algorithm_more() {
    const Places one(std::vector<Whereabouts>(3), {{0, 1, 2}}),
        two(std::vector<Whereabouts>(3), {{0, 1, 2}, {0, 2, 1}});
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
