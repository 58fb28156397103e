// Tests schedule/rank_topology: tiers that separate no ranks are left out, and rings keep the ranks
// of a rack, a host and a node together.
#include "tests/kit/qtest.hpp"

#include "schedule/rank_topology.hpp"

using namespace qccl;

namespace {

std::vector<uint32_t> ring_of(const RankTopology &places) {
    return {places.ring().begin(), places.ring().end()};
}

RankTopology on_hosts(const std::vector<uint32_t> &hosts) {
    std::vector<RankLocation> spots;
    for (const uint32_t host : hosts) spots.push_back({.node = 0, .host = host, .rack = 0});
    return RankTopology(std::move(spots));
}

} // namespace

static void rings_are_contiguous_by_host() {
    using Ranks = std::vector<uint32_t>;
    CHECK(ring_of(on_hosts({7, 3, 7, 3})) == Ranks({0, 2, 1, 3}));
    CHECK(ring_of(on_hosts({1, 1, 0, 0, 2})) == Ranks({0, 1, 2, 3, 4}));
    CHECK_EQ(on_hosts({0, 1, 0}).position(1), 2U);
    // Each entry has the node, host and rack of a rank. The same node number on another host means
    // another node.
    const RankTopology nested({{0, 0, 0}, {0, 1, 1}, {1, 0, 0}, {1, 1, 1}, {0, 0, 0}, {0, 2, 0}});
    CHECK(ring_of(nested) == Ranks({0, 4, 2, 5, 1, 3}));
}

static void a_ring_that_is_given_stands() {
    const RankTopology places({{0, 0, 0}, {0, 0, 0}, {0, 0, 0}}, {{0, 2, 1}});
    CHECK(ring_of(places) == std::vector<uint32_t>({0, 2, 1}));
    CHECK_EQ(places.position(1), 2U);
    CHECK(!(places == on_hosts({0, 0, 0})));
    CHECK(!make_rank_topology({}, {}) && !make_rank_topology({}, {{0, 1, 2}}));
    const auto turned = make_rank_topology({}, {{0, 2, 1}});
    CHECK(turned && *turned == places && turned->tiers().empty());
    CHECK(ring_of(*make_rank_topology({{0, 0, 0}, {0, 1, 0}}, {})) ==
          std::vector<uint32_t>({0, 1}));
}

static void rings_beside_the_first_are_kept() {
    const auto both = make_rank_topology({}, {{0, 1, 2}, {0, 2, 1}});
    CHECK(both && both->rings() == 2);
    CHECK_EQ(both->position(1), 1U);
    CHECK_EQ(both->ring(1)[1], 2U);
    CHECK(!(*both == *make_rank_topology({}, {{0, 2, 1}})));
}

static void tiers_that_part_nothing_are_left_out() {
    CHECK_EQ(on_hosts({0, 0, 0}).tiers().size(), 0U);
    CHECK_EQ(on_hosts({0, 1, 2}).tiers().size(), 0U);
    CHECK_EQ(on_hosts({0, 0, 1}).tiers().size(), 1U);
    CHECK_EQ(on_hosts({0, 0, 1}).hosts().groups(), 2U);
    const RankTopology nodes({{0, 0, 0}, {0, 0, 0}, {1, 0, 0}, {0, 1, 0}, {0, 1, 0}});
    CHECK_EQ(nodes.tiers().size(), 2U);
    CHECK_EQ(nodes.tiers()[0].groups(), 3U);
    CHECK_EQ(nodes.tiers()[1].groups(), 2U);
    // With one host in each rack, hosts and racks are the same tier.
    const RankTopology racks({{0, 0, 0}, {0, 0, 0}, {0, 1, 1}, {0, 1, 1}});
    CHECK_EQ(racks.tiers().size(), 1U);
}

int main() {
    const CMUnitTest tests[] = {
        QTEST(rings_are_contiguous_by_host),
        QTEST(a_ring_that_is_given_stands),
        QTEST(rings_beside_the_first_are_kept),
        QTEST(tiers_that_part_nothing_are_left_out),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
