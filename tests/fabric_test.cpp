// plan/fabric: which links a message passes on a machine of nodes, hosts and racks.
#include "qtest.hpp"

#include "plan/fabric.hpp"

#include <string>

using namespace qccl;

namespace {

constexpr TieredRates rates{.latency_ns = 1,
                            .message_ns = 2,
                            .rank_rate = 10,
                            .node_rate = 40,
                            .cross_rate = 20,
                            .far_latency_ns = 100,
                            .far_message_ns = 5,
                            .line_rate = 3,
                            .rack_rate = 7,
                            .rack_latency_ns = 50,
                            .turn_ns = 30};

// Node, host and rack; nodes are counted within hosts.
Places places() {
    return Places(
        std::vector<Whereabouts>{{0, 0, 0}, {0, 0, 0}, {1, 0, 0}, {0, 1, 0}, {0, 2, 1}, {0, 2, 1}});
}

std::string way(const Fabric &fabric, uint32_t from, uint32_t to) {
    std::string text;
    const MessageRoute route = fabric.route(from, to);
    for (const uint32_t link : route.links())
        text += (text.empty() ? "" : ", ") + fabric.link_name(link);
    return text;
}

} // namespace

static void messages_pass_what_lies_between() {
    const Places spots = places();
    const auto fabric = make_tiered_fabric(6, &spots, rates);
    CHECK_EQ(way(*fabric, 0, 1), "rank 0's sending, node 0's memory, rank 1's receiving");
    CHECK_EQ(way(*fabric, 0, 2), "rank 0's sending, node 0's memory, host 0's memory between its "
                                 "nodes, rank 2's receiving");
    CHECK_EQ(way(*fabric, 2, 3), "host 0's line up, host 1's line down");
    CHECK_EQ(way(*fabric, 5, 1),
             "host 2's line up, rack 1's line up, rack 0's line down, host 0's line down");
    CHECK_EQ(way(*fabric, 5, 4), "rank 5's sending, node 3's memory, rank 4's receiving");
    const MessageRoute near = fabric->route(0, 1), far = fabric->route(2, 3),
                       further = fabric->route(5, 1);
    CHECK_EQ(near.latency_ns, 1.0);
    CHECK_EQ(near.send_ns + near.recv_ns, 4.0);
    CHECK(near.is_by_reference && !far.is_by_reference);
    CHECK_EQ(far.latency_ns, 100.0);
    CHECK_EQ(far.send_ns + far.recv_ns, 10.0);
    CHECK_EQ(further.latency_ns, 150.0);
    double total = 0;
    for (uint32_t link = 0; link < fabric->links(); link++) total += fabric->bytes_per_ns(link);
    CHECK_EQ(total, 6 * 20.0 + 4 * 40 + 3 * 20 + 3 * 6 + 2 * 14);
}

static void what_is_no_bottleneck_is_no_link() {
    const Places spots = places();
    const auto fabric = make_tiered_fabric(6, &spots, {.rank_rate = 0, .line_rate = 2});
    CHECK_EQ(fabric->links(), 6U);
    CHECK_EQ(way(*fabric, 0, 2), "");
    CHECK_EQ(way(*fabric, 5, 1), "host 2's line up, host 0's line down");
    CHECK_EQ(fabric->bytes_per_ns(5), 2.0);
    const auto alone = make_tiered_fabric(3, nullptr, {});
    CHECK_EQ(way(*alone, 2, 0), "rank 2's sending, rank 0's receiving");
}

static void ranks_of_a_host_share_its_cores() {
    const Places spots = places();
    TieredRates crowded = rates;
    CHECK_EQ(make_tiered_fabric(6, &spots, crowded)->cores(0), 3.0);
    crowded.cores = 2;
    const auto fabric = make_tiered_fabric(6, &spots, crowded);
    CHECK_EQ(fabric->core_groups(), 3U);
    CHECK_EQ(fabric->core_group(2), 0U);
    CHECK_EQ(fabric->core_group(4), 2U);
    CHECK_EQ(fabric->cores(0), 2.0);
    // Three ranks take turns there, and two do not.
    CHECK_EQ(fabric->route(0, 1).latency_ns, 30.0);
    CHECK_EQ(fabric->route(4, 5).latency_ns, 1.0);
    CHECK_EQ(fabric->route(3, 0).latency_ns, 130.0);
}

int main() {
    const CMUnitTest tests[] = {
        QTEST(messages_pass_what_lies_between),
        QTEST(what_is_no_bottleneck_is_no_link),
        QTEST(ranks_of_a_host_share_its_cores),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
