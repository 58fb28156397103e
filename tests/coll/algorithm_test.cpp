// Tests coll/algorithm: specs are parsed and printed, malformed specs and impossible teams are
// refused with a sentence, and emitted schedules have the promised traffic between ranks and hosts.
#include "tests/kit/qtest.hpp"

#include "tests/kit/forms.hpp"

#include <cstring>
#include <numeric>

using namespace qccl;

static void specs_read_back() {
    for (const AlgorithmRow &row : algorithm_table())
        CHECK(algorithm_of(row.name) == Algorithm(row));
    for (const Algorithm &algorithm : algorithms())
        CHECK(algorithm_of(spec(algorithm)) == algorithm);
    CHECK_EQ(spec(algorithm_of("tree:shape=binomial")), "tree");
    CHECK_EQ(spec(algorithm_of("tree:shape=double")), "tree:shape=double");
    CHECK(algorithm_of("tree:shape=double") != algorithm_of("tree"));
}

static std::string refusal(const char *text) {
    const auto refused = parse_algorithm(text);
    CHECK(!refused);
    return refused.error().text;
}

static void specs_that_mean_nothing_are_refused() {
    const std::string possible = "; possible are direct, ring, halving, tree, hierarchy, oneshot, "
                                 "doubling, pairwise, bruck, chain, neighbour";
    for (const char *const text : {"star", "auto", ""})
        CHECK_EQ(refusal(text), "algorithm is \"" + std::string(text) + "\"" + possible);
    CHECK_EQ(refusal("direct:"), "algorithm: direct takes no keys");
    CHECK_EQ(refusal("ring:rings=2"), "algorithm: rings is \"2\"; possible are first, all");
    CHECK_EQ(refusal("tree:"), "algorithm: key of tree is \"\"; possible is shape");
    CHECK_EQ(refusal("tree:form=double"), "algorithm: key of tree is \"form\"; possible is shape");
    CHECK_EQ(refusal("tree:shape"), "algorithm: shape has no value; write shape=VALUE");
    CHECK_EQ(refusal("tree:shape=round"),
             "algorithm: shape is \"round\"; possible are binomial, double");
    CHECK_EQ(refusal("tree:shape=double,shape=double"), "algorithm: shape is given twice");
    CHECK_EQ(refusal("tree:shape=double,"), "algorithm: key of tree is \"\"; possible is shape");
}

static void impossible_configs_are_refused() {
    const Algorithm ring = algorithm_of("ring");
    const auto barrier = emit(ring, Collective::barrier, {.size = 2});
    CHECK(!barrier);
    CHECK_EQ(std::string(barrier.error().text), "there is no barrier by ring");
    CHECK(!emit(ring, Collective::all_reduce, {.size = 2, .rank = 2}));
    CHECK(!emit(ring, Collective::all_reduce, {.size = 0}));
    CHECK(!emit(ring, Collective::broadcast, {.size = 2, .rank = 0, .root = 2}));
}

// The same team gives the same schedule.
static void schedules_are_pure() {
    for (const Algorithm &row : algorithms())
        for (int c = 0; c < 5; c++) {
            const auto collective = static_cast<Collective>(c);
            const Team team{.size = 6, .rank = 4, .root = 1};
            if (!row.has(collective)) continue;
            const auto first = emit(row, collective, team), second = emit(row, collective, team);
            CHECK_OK(first);
            CHECK_OK(second);
            CHECK(*first == *second);
        }
}

// Every rank's i-th direct message goes to a different rank, so no receiver gets two of them at
// once.
static void direct_has_no_hot_spot() {
    constexpr uint32_t P = 7;
    std::vector<std::vector<uint32_t>> targets;
    for (uint32_t rank = 0; rank < P; rank++) {
        const auto s =
            emit(algorithm_of("direct"), Collective::all_reduce, {.size = P, .rank = rank});
        CHECK_OK(s);
        std::vector<uint32_t> peers;
        for (const Step &step : s->steps)
            if (step.verb == Verb::send) peers.push_back(step.peer);
        CHECK_EQ(peers.size(), 2U * (P - 1));
        targets.push_back(peers);
    }
    for (size_t i = 0; i < targets[0].size(); i++)
        for (uint32_t a = 0; a < P; a++)
            for (uint32_t b = 0; b < a; b++) CHECK(targets[a][i] != targets[b][i]);
}

static uint32_t sends_between_hosts(const char *algorithm, Collective collective, uint32_t root,
                                    const RankTopology &places) {
    uint32_t sends = 0;
    for (uint32_t rank = 0; rank < places.ranks(); rank++) {
        const auto s =
            emit(algorithm_of(algorithm), collective,
                 {.size = places.ranks(), .rank = rank, .root = root, .places = &places});
        CHECK_OK(s);
        for (const Step &step : s->steps)
            if (step.verb == Verb::send && places.of(step.peer).host != places.of(rank).host)
                sends++;
    }
    return sends;
}

// If the number of ranks on each host is a power of two, each host is a whole branch of the tree,
// in any placement of the ranks.
static void trees_cross_between_hosts_once() {
    std::vector<RankLocation> spots;
    for (uint32_t rank = 0; rank < 16; rank++)
        spots.push_back({.node = 0, .host = rank % 4, .rack = 0});
    const RankTopology places(spots);
    CHECK_EQ(sends_between_hosts("tree", Collective::all_reduce, 0, places), 2U * 3);
    CHECK_EQ(sends_between_hosts("tree", Collective::broadcast, 0, places), 3U);
    CHECK_EQ(sends_between_hosts("tree", Collective::broadcast, 1, places), 3U);
    // If trees followed the order of ranks, all children but the nearest three would be on other
    // hosts.
    std::vector<uint32_t> by_rank(16);
    std::iota(by_rank.begin(), by_rank.end(), 0U);
    CHECK(sends_between_hosts("tree", Collective::broadcast, 0, RankTopology(spots, {by_rank})) >
          10);
}

int main() {
    const CMUnitTest tests[] = {
        QTEST(specs_read_back),
        QTEST(specs_that_mean_nothing_are_refused),
        QTEST(impossible_configs_are_refused),
        QTEST(schedules_are_pure),
        QTEST(direct_has_no_hot_spot),
        QTEST(trees_cross_between_hosts_once),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
