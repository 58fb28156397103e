// Tests topology/formats/graph_fabric: which links messages share on the graph of a job, and which
// rates, bursts and latencies they get.
#include "tests/kit/qtest.hpp"

#include "topology/formats/read_topology.hpp"

#include <algorithm>
#include <set>
#include <string>

using namespace qccl;

namespace {

const TieredRates rates{
    .local = {{.latency_ns = 10, .message_ns = 1, .byte_ns = 0.5}, {.latency_ns = 30}},
    .eager = {{.latency_ns = 2}, {}},
    .remote = {{.latency_ns = 100, .message_ns = 7}, {.latency_ns = 200}},
    .line_rate = 3,
    .line_burst_bytes = 1000};

JobTopology job_of(const char *text, uint32_t ranks = 0) {
    auto graph = parse_synthetic(text);
    CHECK_OK(graph);
    auto places = rank_places(*graph, ranks);
    CHECK_OK(places);
    return {std::move(*graph), std::move(*places)};
}

std::unique_ptr<Fabric> fabric_of(const JobTopology &job, bool says_line_rate = false,
                                  const TieredRates &with = rates) {
    auto fabric = make_graph_fabric(job, with, says_line_rate);
    CHECK_OK(fabric);
    CHECK_EQ((*fabric)->ranks(), job.places.size());
    return std::move(*fabric);
}

std::set<uint32_t> links_of(const MessageRoute &route) {
    const auto links = route.links();
    return {links.begin(), links.end()};
}

double narrowest(const Fabric &fabric, const MessageRoute &route) {
    double least = 1e30;
    for (const uint32_t link : route.links()) least = std::min(least, fabric.bytes_per_ns(link));
    return least;
}

double net(LinkClass link_class, double rate) { return rate * row(link_class).efficiency; }

} // namespace

static void messages_between_machines_leave_by_the_ranks_own_nics() {
    const auto fabric = fabric_of(job_of("2 x node(4 gpu nvlink:100) net:25x4"));
    std::set<uint32_t> used;
    for (uint32_t rank = 0; rank < 4; rank++) {
        const MessageRoute out = fabric->route(rank, 4 + rank, false),
                           back = fabric->route(4 + rank, rank, false);
        CHECK(!out.is_by_reference);
        CHECK_EQ(out.latency_ns, 100.0);
        CHECK_EQ(narrowest(*fabric, out), narrowest(*fabric, back));
        CHECK(narrowest(*fabric, out) <= net(LinkClass::rdma, 25));
        const std::set<uint32_t> there = links_of(out), again = links_of(back);
        CHECK(std::ranges::none_of(there, [&](uint32_t link) { return again.contains(link); }));
        for (const uint32_t link : there)
            if (fabric->burst_bytes(link) > 0) used.insert(link);
    }
    CHECK_EQ(used.size(), 8U); // up from four NICs and down to four others
    // Messages from two ranks of one machine to one rank share the NIC of that rank.
    const std::set<uint32_t> a = links_of(fabric->route(0, 5, false)),
                             b = links_of(fabric->route(1, 5, false));
    CHECK(std::ranges::any_of(a, [&](uint32_t link) { return b.contains(link); }));
}

static void messages_within_a_machine_stay_there() {
    const auto fabric = fabric_of(job_of("2 x node(4 gpu nvlink:90) net:25x4"));
    const MessageRoute local = fabric->route(0, 1, false);
    CHECK(local.is_by_reference);
    CHECK_EQ(local.latency_ns, 10.0);
    CHECK_EQ(fabric->route(0, 1, true).latency_ns, 2.0);
    CHECK_EQ(local.count, 1U);
    CHECK_EQ(local.send.message_ns, 1.0);
    CHECK_EQ(local.send.byte_ns, 0.0);
    CHECK(std::abs(fabric->bytes_per_ns(local.numbers[0]) - net(LinkClass::nvlink, 30)) < 1e-9);
    CHECK(links_of(local) != links_of(fabric->route(1, 0, false)));
    CHECK_EQ(fabric->burst_bytes(local.numbers[0]), 0.0);
}

static void lines_have_the_rate_that_is_known() {
    const auto rate_of = [](const char *text, bool says_line_rate) {
        const auto fabric = fabric_of(job_of(text), says_line_rate);
        return narrowest(*fabric, fabric->route(0, 1, false));
    };
    CHECK_EQ(rate_of("2 x node() net:tcp:10gbit", false), net(LinkClass::tcp, 1.25));
    CHECK_EQ(rate_of("2 x node() net:tcp:10gbit", true), 3.0);
}

static void ranks_of_one_place_share_its_way() {
    const auto fabric = fabric_of(job_of("2 x node(2 core) net:tcp:10gbit", 4));
    CHECK(links_of(fabric->route(0, 2, false)) == links_of(fabric->route(1, 3, false)));
    CHECK_EQ(fabric->route(0, 1, false).count, 0U);
    CHECK_EQ(fabric->core_groups(), 2U);
    CHECK_EQ(fabric->core_group(3), 1U);
    TieredRates one_core = rates;
    one_core.cores = 1;
    const auto crowded = fabric_of(job_of("2 x node(2 core) net:tcp:10gbit", 4), false, one_core);
    CHECK_EQ(crowded->route(0, 2, false).latency_ns, 2 * 200.0);
    CHECK(crowded->cores_name(1).ends_with("'s cores"));
}

int main() {
    const CMUnitTest tests[] = {
        QTEST(messages_between_machines_leave_by_the_ranks_own_nics),
        QTEST(messages_within_a_machine_stay_there),
        QTEST(lines_have_the_rate_that_is_known),
        QTEST(ranks_of_one_place_share_its_way),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
