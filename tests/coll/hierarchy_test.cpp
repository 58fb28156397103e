// Tests coll/hierarchy over many shapes of teams: every variant is proven correct, has the rounds
// and the noise that it states, and sends as little between hosts as possible.
#include "tests/kit/qtest.hpp"

#include "tests/kit/forms.hpp"

#include "schedule/verify.hpp"

#include <cmath>

using namespace qccl;

namespace {

using Sizes = std::vector<uint32_t>; // ranks of each host

// Puts the ranks on host after host, or deals them out to the hosts in turn.
RankTopology make_rank_topology(const Sizes &hosts, bool in_turn = false) {
    std::vector<RankLocation> spots;
    uint32_t most = 0;
    for (const uint32_t size : hosts) most = std::max(most, size);
    for (uint32_t outer = 0; outer < (in_turn ? most : hosts.size()); outer++)
        for (uint32_t inner = 0; inner < (in_turn ? hosts.size() : hosts[outer]); inner++) {
            const uint32_t host = in_turn ? inner : outer, local = in_turn ? outer : inner;
            if (local < hosts[host]) spots.push_back({.node = 0, .host = host, .rack = 0});
        }
    return RankTopology(spots);
}

// Returns `racks` racks of `hosts` hosts of `nodes` nodes of `ranks` ranks.
RankTopology nested_places(uint32_t racks, uint32_t hosts, uint32_t nodes, uint32_t ranks) {
    std::vector<RankLocation> spots;
    for (uint32_t rack = 0; rack < racks; rack++)
        for (uint32_t host = 0; host < hosts; host++)
            for (uint32_t node = 0; node < nodes; node++)
                spots.insert(spots.end(), ranks, {.node = node, .host = host, .rack = rack});
    return RankTopology(spots);
}

std::vector<Algorithm> variants() {
    std::vector<Algorithm> all;
    for (const char *inner : {"direct", "ring", "halving", "tree"})
        for (const char *outer : {"ring", "halving", "direct", "tree"})
            for (const char *share : {"every", "leader"})
                all.push_back(algorithm_of(std::string("hierarchy:inner=") + inner +
                                           ",outer=" + outer + ",share=" + share));
    return all;
}

Result<Verified> prove(ScheduleForm form, const Algorithm &algorithm, Collective collective,
                       const RankTopology &places, uint32_t root = 0) {
    const Team team{.size = places.ranks(), .rank = 0, .root = root, .places = &places};
    return verify({collective, algorithm.order(team), team.size, root, algorithm.own()},
                  [&](uint32_t rank) -> Result<Schedule> {
                      Team mine = team;
                      mine.rank = rank;
                      return make(form, algorithm, collective, mine);
                  });
}

void check(const Algorithm &algorithm, Collective collective, const RankTopology &places,
           uint32_t root = 0) {
    const Team team{.size = places.ranks(), .rank = 0, .root = root, .places = &places};
    for (const ScheduleForm form : forms) {
        const auto proof = prove(form, algorithm, collective, places, root);
        CHECK_OK(proof);
        CHECK_EQ(proof->rounds, algorithm.rounds(collective, team));
        if (form == ScheduleForm::author) continue;
        CHECK(is_close(proof->noise, algorithm.noise(collective, team)));
        CHECK(is_close(proof->inner_noise, algorithm.inner_noise(collective, team)));
    }
}

} // namespace

static void every_hierarchy_is_proven() {
    for (const Algorithm &algorithm : variants())
        for (const Sizes &hosts : {Sizes{2, 2}, Sizes{3, 3, 3}, Sizes{1, 2}, Sizes{4, 2, 3},
                                   Sizes{1, 1, 1}, Sizes{5}, Sizes{1, 5}, Sizes{2, 3, 1, 4, 2}})
            for (const bool in_turn : {false, true})
                for (const Collective collective : collectives_of(algorithm)) {
                    const RankTopology places = make_rank_topology(hosts, in_turn);
                    check(algorithm, collective, places,
                          row_of(collective).has_root ? places.ranks() / 2 : 0);
                }
}

static void hierarchies_of_three_tiers_are_proven() {
    for (const Algorithm &algorithm : variants())
        for (const Collective collective : collectives_of(algorithm)) {
            check(algorithm, collective, nested_places(1, 2, 2, 2));
            check(algorithm, collective, nested_places(2, 2, 1, 3));
            check(algorithm, collective, nested_places(2, 3, 2, 2));
        }
}

// Returns the number of messages that the ranks of a host send to other hosts.
static uint32_t leaving(const char *spec, const RankTopology &places, uint32_t host) {
    uint32_t messages = 0;
    for (const uint32_t rank : places.hosts().ranks(host)) {
        const Schedule s = make(ScheduleForm::author, algorithm_of(spec), Collective::all_reduce,
                                {.size = places.ranks(), .rank = rank, .places = &places});
        for (const Step &step : s.steps)
            messages += step.verb == Verb::send && places.hosts().group_of(step.peer) != host;
    }
    return messages;
}

// Each byte leaves a host once: a vector has four chunks, and a host sends each of them once.
static void each_byte_leaves_a_host_once() {
    for (const bool in_turn : {false, true}) {
        const RankTopology places = make_rank_topology({2, 2}, in_turn);
        CHECK_EQ(leaving("hierarchy", places, 0), 4U);
        CHECK_EQ(leaving("hierarchy", places, 1), 4U);
        CHECK_EQ(leaving("hierarchy:share=leader", places, 0), 2U); // two chunks
        // The ring enters and leaves a host once, however the ranks are dealt out.
        CHECK_EQ(leaving("ring", places, 0), 6U);
    }
}

// Returns the ranks that send to another host.
static std::vector<uint32_t> leaders(const char *spec, Collective collective,
                                     const RankTopology &places, uint32_t root = 0) {
    std::vector<uint32_t> found;
    for (uint32_t rank = 0; rank < places.ranks(); rank++) {
        const Team team{.size = places.ranks(), .rank = rank, .root = root, .places = &places};
        const Schedule s = make(ScheduleForm::author, algorithm_of(spec), collective, team);
        const auto leaves = [&](const Step &step) {
            return step.verb == Verb::send &&
                   places.hosts().group_of(step.peer) != places.hosts().group_of(rank);
        };
        if (std::any_of(s.steps.begin(), s.steps.end(), leaves)) found.push_back(rank);
    }
    return found;
}

static void every_rank_carries_or_one_of_each_host() {
    using Ranks = std::vector<uint32_t>;
    const RankTopology places = make_rank_topology({2, 3, 2});
    for (const Collective collective : {Collective::all_reduce, Collective::all_gather})
        CHECK(leaders("hierarchy:share=leader", collective, places) == Ranks({0, 2, 5}));
    CHECK(leaders("hierarchy", Collective::all_reduce, places) == Ranks({0, 1, 2, 3, 5, 6}));
    // The third rank of a host sends nothing but its own chunk to other hosts.
    CHECK_EQ(leaders("hierarchy", Collective::all_gather, places).size(), 7U);
    // The last host of the chain sends to no other host.
    for (const uint32_t root : {0U, 1U}) {
        CHECK(leaders("hierarchy", Collective::broadcast, places, root) == Ranks({0, 1, 2, 3}));
        CHECK(leaders("hierarchy:share=leader", Collective::broadcast, places, root) ==
              Ranks({root, 2 + root}));
    }
}

static void rings_go_by_host() {
    const Algorithm ring = algorithm_of("ring");
    for (const Collective collective : collectives_of(ring))
        for (const Sizes &hosts : {Sizes{2, 2}, Sizes{4, 2, 3}, Sizes{1, 5}}) {
            const RankTopology places = make_rank_topology(hosts, true);
            check(ring, collective, places, places.ranks() - 1);
        }
}

int main() {
    const CMUnitTest tests[] = {
        QTEST(every_hierarchy_is_proven),
        QTEST(hierarchies_of_three_tiers_are_proven),
        QTEST(each_byte_leaves_a_host_once),
        QTEST(every_rank_carries_or_one_of_each_host),
        QTEST(rings_go_by_host),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
