// Tests lib/plan/simulator/fabric: the links that a message passes between ranks on nodes, hosts
// and racks, and the shares of cores.
#include "tests/kit/qtest.hpp"

#include "plan/simulator/fabric.hpp"

#include <string>

using namespace qccl;

namespace {

constexpr TieredRates rates{
    .local = {{.latency_ns = 1, .message_ns = 2}, {.latency_ns = 20}},
    .eager = {{.latency_ns = 0.5}, {}},
    .remote = {{.latency_ns = 100, .message_ns = 5, .byte_ns = 2}, {.latency_ns = 200}},
    .remote_send_share = 0.75,
    .remote_eager_bytes = 10,
    .rendezvous_ns = 77,
    .rank_rate = 10,
    .node_rate = 40,
    .cross_rate = 20,
    .line_rate = 3,
    .line_burst_bytes = 1000,
    .rack_rate = 7,
    .rack_latency_ns = 50,
};

// Locations are node, host and rack; nodes are numbered within their host.
RankTopology places() {
    return RankTopology(std::vector<RankLocation>{
        {0, 0, 0}, {0, 0, 0}, {1, 0, 0}, {0, 1, 0}, {0, 2, 1}, {0, 2, 1}});
}

std::string way(const Fabric &fabric, uint32_t from, uint32_t to) {
    std::string text;
    const MessageRoute route = fabric.route(from, to, false);
    for (const uint32_t link : route.links())
        text += (text.empty() ? "" : ", ") + fabric.link_name(link);
    return text;
}

} // namespace

static void messages_pass_what_lies_between() {
    const RankTopology spots = places();
    const auto fabric = make_tiered_fabric(6, &spots, rates);
    CHECK_EQ(way(*fabric, 0, 1), "rank 0's sending, node 0's memory, rank 1's receiving");
    CHECK_EQ(way(*fabric, 0, 2), "rank 0's sending, node 0's memory, host 0's memory between its "
                                 "nodes, rank 2's receiving");
    CHECK_EQ(way(*fabric, 2, 3), "host 0's line up, host 1's line down");
    CHECK_EQ(way(*fabric, 5, 1),
             "host 2's line up, rack 1's line up, rack 0's line down, host 0's line down");
    CHECK_EQ(way(*fabric, 5, 4), "rank 5's sending, node 3's memory, rank 4's receiving");
    const MessageRoute local = fabric->route(0, 1, false), remote = fabric->route(2, 3, true),
                       further = fabric->route(5, 1, false);
    CHECK_EQ(local.latency_ns, 1.0);
    CHECK_EQ(local.send.message_ns + local.recv.message_ns, 4.0);
    CHECK_EQ(local.rendezvous_ns, 0.0);
    CHECK_EQ(fabric->route(0, 1, true).latency_ns, 0.5);
    CHECK(local.is_by_reference && !remote.is_by_reference);
    CHECK_EQ(remote.latency_ns, 100.0);
    CHECK_EQ(remote.send.message_ns, 7.5);
    CHECK_EQ(remote.recv.message_ns, 2.5);
    CHECK_EQ(remote.send.byte_ns + remote.recv.byte_ns, 4.0);
    CHECK_EQ(remote.eager_bytes, 10U);
    CHECK_EQ(remote.rendezvous_ns, 77.0);
    CHECK_EQ(further.latency_ns, 150.0);
    double total = 0;
    for (uint32_t link = 0; link < fabric->links(); link++) total += fabric->bytes_per_ns(link);
    double bursts = 0;
    for (uint32_t link = 0; link < fabric->links(); link++) bursts += fabric->burst_bytes(link);
    CHECK_EQ(bursts, 6 * 1000.0);
    CHECK_EQ(total, 6 * 20.0 + 4 * 40 + 3 * 20 + 3 * 6 + 2 * 14);
}

static void what_is_no_bottleneck_is_no_link() {
    const RankTopology spots = places();
    const auto fabric =
        make_tiered_fabric(6, &spots, {.local = {}, .eager = {}, .remote = {}, .line_rate = 2});
    CHECK_EQ(fabric->links(), 6U);
    CHECK_EQ(way(*fabric, 0, 2), "");
    CHECK_EQ(way(*fabric, 5, 1), "host 2's line up, host 0's line down");
    CHECK_EQ(fabric->bytes_per_ns(5), 2.0);
    const auto alone = make_tiered_fabric(3, nullptr, rates);
    CHECK_EQ(way(*alone, 2, 0), "rank 2's sending, node 0's memory, rank 0's receiving");
}

static void ranks_of_a_host_share_its_cores() {
    const RankTopology spots = places();
    TieredRates crowded = rates;
    CHECK_EQ(make_tiered_fabric(6, &spots, crowded)->cores(0), 3.0);
    crowded.cores = 2;
    const auto fabric = make_tiered_fabric(6, &spots, crowded);
    CHECK_EQ(fabric->core_groups(), 3U);
    CHECK_EQ(fabric->core_group(2), 0U);
    CHECK_EQ(fabric->core_group(4), 2U);
    CHECK_EQ(fabric->cores(0), 2.0);
    // Three ranks take turns on the two cores of host 0; two ranks need not. A waiting rank polls
    // the network, so messages between hosts take longer as well.
    CHECK_EQ(fabric->route(0, 1, false).latency_ns, 200 * 1.5);
    CHECK_EQ(fabric->route(4, 5, false).latency_ns, 1.0);
    CHECK_EQ(fabric->route(3, 0, false).latency_ns, 200 * 1.5);
    const auto one_host = make_tiered_fabric(3, nullptr, crowded);
    CHECK_EQ(one_host->route(0, 1, false).latency_ns, 20 * 1.5);
    CHECK_EQ(one_host->cores_name(0), "host 0's cores");
}

// The hosts are network namespaces of one machine.
static void hosts_may_share_cores() {
    const RankTopology spots = places();
    TieredRates shared = rates;
    shared.cores = 2;
    shared.hosts_share_cores = true;
    const auto fabric = make_tiered_fabric(6, &spots, shared);
    CHECK_EQ(fabric->core_groups(), 1U);
    CHECK_EQ(fabric->core_group(5), 0U);
    CHECK_EQ(fabric->cores(0), 2.0);
    CHECK_EQ(fabric->route(3, 0, false).latency_ns, 200 * 3.0);
    CHECK_EQ(fabric->cores_name(0), "cores of all hosts");
}

// The processors are hardware threads of shared cores.
static void cores_do_less_when_all_compute() {
    TieredRates threads = rates;
    threads.cores = 2;
    threads.busy_core = 0.6;
    CHECK_EQ(make_tiered_fabric(2, nullptr, threads)->cores(0), 1.2);
    const RankTopology spots = places();
    CHECK_EQ(make_tiered_fabric(6, &spots, threads)->cores(0), 2.0);
}

int main() {
    const CMUnitTest tests[] = {
        QTEST(messages_pass_what_lies_between), QTEST(what_is_no_bottleneck_is_no_link),
        QTEST(ranks_of_a_host_share_its_cores), QTEST(hosts_may_share_cores),
        QTEST(cores_do_less_when_all_compute),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
