// schedule/places: tiers that say nothing are left out, and rings go by rack, host and node.
#include "qtest.hpp"

#include "schedule/places.hpp"

using namespace qccl;

namespace {

std::vector<uint32_t> ring_of(const Places &places) {
    return {places.ring().begin(), places.ring().end()};
}

Places on_hosts(const std::vector<uint32_t> &hosts) {
    std::vector<Whereabouts> spots;
    for (const uint32_t host : hosts) spots.push_back({.node = 0, .host = host, .rack = 0});
    return Places(std::move(spots));
}

} // namespace

static void rings_are_contiguous_by_host() {
    using Ranks = std::vector<uint32_t>;
    CHECK(ring_of(on_hosts({7, 3, 7, 3})) == Ranks({0, 2, 1, 3}));
    CHECK(ring_of(on_hosts({1, 1, 0, 0, 2})) == Ranks({0, 1, 2, 3, 4}));
    CHECK_EQ(on_hosts({0, 1, 0}).position(1), 2U);
    // Node, host and rack of each: the same number of a node means another one on another host.
    const Places nested({{0, 0, 0}, {0, 1, 1}, {1, 0, 0}, {1, 1, 1}, {0, 0, 0}, {0, 2, 0}});
    CHECK(ring_of(nested) == Ranks({0, 4, 2, 5, 1, 3}));
}

static void a_ring_that_is_given_stands() {
    const Places places({{0, 0, 0}, {0, 0, 0}, {0, 0, 0}}, {{0, 2, 1}});
    CHECK(ring_of(places) == std::vector<uint32_t>({0, 2, 1}));
    CHECK_EQ(places.position(1), 2U);
    CHECK(!(places == on_hosts({0, 0, 0})));
    CHECK(!places_of({}, {}) && !places_of({}, {{0, 1, 2}}));
    const auto turned = places_of({}, {{0, 2, 1}});
    CHECK(turned && *turned == places && turned->tiers().empty());
    CHECK(ring_of(*places_of({{0, 0, 0}, {0, 1, 0}}, {})) == std::vector<uint32_t>({0, 1}));
}

static void rings_beside_the_first_are_kept() {
    const auto both = places_of({}, {{0, 1, 2}, {0, 2, 1}});
    CHECK(both && both->rings() == 2);
    CHECK_EQ(both->position(1), 1U);
    CHECK_EQ(both->ring(1)[1], 2U);
    CHECK(!(*both == *places_of({}, {{0, 2, 1}})));
}

static void tiers_that_part_nothing_are_left_out() {
    CHECK_EQ(on_hosts({0, 0, 0}).tiers().size(), 0U);
    CHECK_EQ(on_hosts({0, 1, 2}).tiers().size(), 0U);
    CHECK_EQ(on_hosts({0, 0, 1}).tiers().size(), 1U);
    CHECK_EQ(on_hosts({0, 0, 1}).hosts().groups(), 2U);
    const Places nodes({{0, 0, 0}, {0, 0, 0}, {1, 0, 0}, {0, 1, 0}, {0, 1, 0}});
    CHECK_EQ(nodes.tiers().size(), 2U);
    CHECK_EQ(nodes.tiers()[0].groups(), 3U);
    CHECK_EQ(nodes.tiers()[1].groups(), 2U);
    // A host in each rack is the rack.
    const Places racks({{0, 0, 0}, {0, 0, 0}, {0, 1, 1}, {0, 1, 1}});
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
