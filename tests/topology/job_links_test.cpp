// Tests the links and locations of topology/job_graph: what the planner takes from the graph of a
// job about the links between hosts, within hosts and between racks, and about where ranks are.
#include "tests/kit/qtest.hpp"

#include "topology/formats/read_topology.hpp"
#include "topology/job_graph.hpp"
#include "topology/rank_order.hpp"
#include "topology/sources/machine_sources.hpp"

#include <cmath>

using namespace qccl;

namespace {

JobTopology job_on(Graph graph, uint32_t ranks = 0) {
    auto places = rank_places(graph, ranks);
    CHECK_OK(places);
    return {std::move(graph), std::move(*places)};
}

JobTopology job_of(const char *text, uint32_t ranks = 0) {
    auto graph = parse_synthetic(text);
    CHECK_OK(graph);
    return job_on(std::move(*graph), ranks);
}

double net(LinkClass link_class, double rate) { return rate * row(link_class).efficiency; }

void the_slowest_host_sets_the_rate() {
    const auto rate_of = [](const char *text) { return remote_link(job_of(text))->bytes_per_ns; };
    const double fast = net(LinkClass::rdma, 12.5), slow = net(LinkClass::tcp, 1.25);
    CHECK(rate_of("2 x node(nic:12.5 nic:1.25)") == fast);
    CHECK(rate_of("2 x node(nic:1.25 nic:12.5)") == fast);
    CHECK(rate_of("2 x node(2 numa nic:1.25 nic:12.5)") == fast);
    CHECK(rate_of("2 x node(2 numa nic:12.5 nic:1.25)") == fast);
    CHECK(rate_of("node(nic:12.5 nic:1.25) + node(nic:1.25)") == slow);
    CHECK(remote_link(job_of("2 x node() net:12.5"))->link_class == LinkClass::rdma);
    CHECK(remote_link(job_of("node(nic:12.5) + node(nic:1.25)"))->link_class == LinkClass::tcp);
    CHECK(!remote_link(job_of("1 x node(2 numa nic:12.5)")));
}

// Each rank has a NIC of its own, as long as there are enough.
void nics_that_ranks_are_near_to_count_together() {
    const double one = net(LinkClass::rdma, 50);
    const auto rate_of = [](const char *text, uint32_t ranks) {
        return remote_link(job_of(text, ranks))->bytes_per_ns;
    };
    CHECK(rate_of("2 x node(8 gpu) net:50x8", 16) == 8 * one);
    CHECK(rate_of("2 x node(8 gpu) net:50x2", 16) == 2 * one);
    CHECK(rate_of("2 x node(8 gpu) net:50", 16) == one);
    CHECK(rate_of("2 x node(2 numa) net:1.25x2", 4) == net(LinkClass::tcp, 1.25));
    CostModel speeds;
    apply_link(*remote_link(job_of("2 x node(8 gpu) net:50x8", 16)), {}, speeds);
    CHECK(speeds.remote_bytes_per_ns == 8 * one && speeds.remote_rank_bytes_per_ns == one);
    CHECK(!remote_link(job_of("2 x node(8 gpu) net:50", 16))->rank_bytes_per_ns);
    // A NIC whose rate is unknown counts for nothing.
    JobTopology job = job_of("2 x node(2 gpu) net:50x2");
    Graph graph;
    for (const Vertex &vertex : job.graph.vertices()) graph.add(vertex);
    bool is_first = true;
    for (Link link : job.graph.links()) {
        if (link.link_class == LinkClass::rdma && is_first) link.bytes_per_ns = 0;
        is_first = is_first && link.link_class != LinkClass::rdma;
        graph.connect(link);
    }
    job.graph = graph;
    CHECK(remote_link(job)->bytes_per_ns == one);
}

void hosts_without_ranks_do_not_count() {
    const JobTopology job =
        job_of("node(1 gpu nic:12.5) + node(1 gpu nic:12.5) + node(1 gpu nic:1.25)", 2);
    CHECK(remote_link(job)->bytes_per_ns == net(LinkClass::rdma, 12.5));
}

void a_rate_that_no_nic_says_is_unknown() {
    const Graph machine = *parse_synthetic("node(2 core)");
    const Graph known = *parse_synthetic("node(2 core nic:1.25)");
    const std::vector<JobMachine> machines = {{&known, "a", ""}, {&machine, "b", ""}};
    const auto link = remote_link(job_on(JobGraph(machines).take()));
    CHECK(link && !link->bytes_per_ns && link->link_class == LinkClass::tcp);
    CostModel speeds;
    apply_link(*link, {}, speeds);
    CHECK(speeds == CostModel());
}

void tcp_keeps_the_planners_figures_but_for_the_rate() {
    CostModel speeds, expected;
    apply_link({LinkClass::tcp, 1.25, {}, 0}, {}, speeds);
    expected.remote_bytes_per_ns = 1.25;
    expected.remote_rate_source = RateSource::stated;
    CHECK(speeds == expected);
}

void rdma_moves_bytes_without_the_processor() {
    CostModel speeds;
    apply_link({LinkClass::rdma, 46, {}, 600}, {}, speeds);
    CHECK(speeds.remote_bytes_per_ns == 46);
    CHECK(speeds.remote.alone.byte_ns < CostModel().remote.alone.byte_ns / 10);
    CHECK(speeds.remote.alone.latency_ns == 3600);
}

void settings_stand() {
    Settings settings;
    settings.link_rate = 1000000000;
    settings.link_latency = std::chrono::microseconds(7);
    CostModel speeds = cost_model_by(settings, 1, {});
    apply_link({LinkClass::rdma, 46, {}, 600}, settings, speeds);
    CHECK(speeds.remote_bytes_per_ns == 1);
    CHECK(speeds.remote.alone.latency_ns == 7000 && speeds.remote.shared.latency_ns == 7000);
}

void the_slowest_neighbours_set_the_pace_in_a_host() {
    const auto gpus = local_link(job_of("2 x node(4 gpu nvlink:450) net:50"));
    CHECK(gpus->link_class == LinkClass::nvlink);
    CHECK(std::abs(*gpus->bytes_per_ns - net(LinkClass::nvlink, 150)) < 1e-9);
    const auto switched = local_link(job_of("node(8 gpu nvswitch:450)"));
    CHECK(switched->link_class == LinkClass::nvswitch);
    const auto unknown = local_link(job_of("node(2 gpu)"));
    CHECK(unknown->link_class == LinkClass::pcie && !unknown->bytes_per_ns);
    const auto packages = local_link(job_of("node(2 package interconnect:50 memory:100)"));
    CHECK(packages->link_class == LinkClass::cpu_interconnect);
    CHECK(std::abs(*packages->bytes_per_ns - net(LinkClass::cpu_interconnect, 50)) < 1e-9);
    CHECK(!local_link(job_of("2 x node() net:50")));
}

void links_between_gpus_are_known_by_pair() {
    const JobTopology mesh = job_of("2 x node(5 gpu nvlink:400) net:50");
    const auto links = shared_links(mesh).local;
    CHECK(links && links->kinds.size() == 1); // both hosts have the same kind
    CHECK_EQ(links->way(5, 6).size(), 1U);
    CHECK(links->way(0, 1) == links->way(5, 6) && links->way(0, 1) != links->way(1, 0));
    const double byte_ns = links->kinds[0].byte_ns[links->way(0, 1)[0]];
    CHECK(std::abs(byte_ns * net(LinkClass::nvlink, 100) - 1) < 1e-9);
    const auto switched = shared_links(job_of("node(8 gpu nvswitch:450)")).local;
    CHECK_EQ(switched->way(3, 4).size(), 2U);
    CHECK_EQ(switched->way(3, 4)[0], switched->way(3, 5)[0]);
    const auto unknown = shared_links(job_of("node(2 gpu)")).local;
    for (const uint32_t link : unknown->way(0, 1)) CHECK(unknown->kinds[0].byte_ns[link] == 0);
    CHECK(!shared_links(job_of("node(2 core)")).local);
}

void racks_have_lines() {
    const auto lines = [](const char *text) { return shared_links(job_of(text)).racks; };
    const auto two = lines("2 x rack(2 x node() net:10gbit) net:tcp:1gbit");
    CHECK(two && two->rack_of == std::vector<uint32_t>({1, 1, 2, 2}));
    CHECK(two->parent == std::vector<uint32_t>({0, 0, 0}));
    CHECK(std::abs(*two->slowest_bytes_per_ns() / net(LinkClass::tcp, 0.125) - 1) < 1e-9);
    const auto wide = lines("2 x rack(2 x node() net:10gbit) net:rdma:50x4");
    CHECK(std::abs(*wide->slowest_bytes_per_ns() / net(LinkClass::rdma, 200) - 1) < 1e-9);
    // Tries sites of racks, and a host that is in no rack.
    const auto sites = lines("2 x rack(2 x rack(node() net:10) net:5) + node() net:tcp:1");
    CHECK(sites && sites->rack_of == std::vector<uint32_t>({2, 3, 5, 6, 0}));
    CHECK(sites->parent == std::vector<uint32_t>({0, 0, 1, 1, 0, 4, 4}));
    CHECK(sites->byte_ns[1] > 4 * sites->byte_ns[2]);
    CHECK(!lines("4 x node() net:10gbit"));
    // A file may have two networks without a parent.
    JobTopology job = job_of("2 x rack(2 x node() net:10gbit) net:tcp:1gbit");
    Graph graph;
    for (Vertex vertex : job.graph.vertices()) {
        if (vertex.kind == VertexKind::network) vertex.parent = no_vertex;
        graph.add(std::move(vertex));
    }
    for (const Link &link : job.graph.links()) graph.connect(link);
    job.graph = std::move(graph);
    const auto apart = shared_links(job).racks;
    CHECK(apart && apart->parent == std::vector<uint32_t>({0, 0, 0}));
    CHECK(apart->byte_ns == two->byte_ns);
    CHECK(!lines("node(2 gpu)"));
    const Graph machine = *parse_synthetic("node(2 core)");
    const std::vector<JobMachine> machines = {{&machine, "a", "east"}, {&machine, "b", "west"}};
    const auto unknown = shared_links(job_on(JobGraph(machines).take())).racks;
    CHECK(unknown && !unknown->slowest_bytes_per_ns());
    // Links of racks without ranks do not count.
    const auto half = shared_links(job_of("2 x rack(node() net:10) + rack(2 x rack(node() net:10) "
                                          "net:tcp:0.1) net:tcp:1",
                                          2));
    CHECK(std::abs(*half.racks->slowest_bytes_per_ns() / net(LinkClass::tcp, 1) - 1) < 1e-9);
}

void ranks_are_on_nodes_hosts_and_racks() {
    const auto spots = location(job_of("2 x rack(2 x node(2 numa) net:10) net:40"));
    CHECK(spots.size() == 8);
    CHECK(spots[0].node != spots[1].node && spots[0].host == spots[1].host);
    CHECK(spots[1].host != spots[2].host && spots[1].rack == spots[2].rack);
    CHECK(spots[3].rack != spots[4].rack && spots[4].host == 2);
    CHECK(location(job_of("node(8 core)", 4)).empty());
    CHECK(are_on_gpus(job_of("node(2 gpu)")) && !are_on_gpus(job_of("node(2 core)")));
}

void rings_follow_the_widest_links() {
    CHECK(rings_of(job_of("2 x node(2 gpu nvlink:450) net:50"))[0] ==
          std::vector<uint32_t>({0, 1, 2, 3}));
    // NVLink joins 0 with 2, 2 with 1, 1 with 3 and 3 with 0.
    Graph graph = *parse_synthetic("node(4 gpu)");
    const std::vector<uint32_t> gpus = graph.of_kind(VertexKind::gpu);
    for (const auto &[from, to] : {std::pair(0, 2), {2, 1}, {1, 3}, {3, 0}})
        graph.connect({.from = gpus[static_cast<size_t>(from)],
                       .to = gpus[static_cast<size_t>(to)],
                       .link_class = LinkClass::nvlink,
                       .bytes_per_ns = 50});
    const auto ring = rings_of(job_on(std::move(graph)))[0];
    CHECK(ring == std::vector<uint32_t>({0, 2, 1, 3}));
    for (const char *text :
         {"8 x node(8 gpu nvlink:450) net:50x8", "2 x rack(3 x node(2 numa) net:10) net:40"}) {
        const JobTopology job = job_of(text);
        const RankOrder order = order_ranks(job.graph, job.places);
        const RingOrders rings = rings_of(job);
        CHECK(rings.size() == order.rings.size());
        for (size_t i = 0; i < order.rings.size(); i++) CHECK(rings[i] == order.rings[i].ranks);
    }
}

} // namespace

int main() {
    const CMUnitTest tests[] = {
        QTEST(the_slowest_host_sets_the_rate),
        QTEST(nics_that_ranks_are_near_to_count_together),
        QTEST(hosts_without_ranks_do_not_count),
        QTEST(a_rate_that_no_nic_says_is_unknown),
        QTEST(tcp_keeps_the_planners_figures_but_for_the_rate),
        QTEST(rdma_moves_bytes_without_the_processor),
        QTEST(settings_stand),
        QTEST(the_slowest_neighbours_set_the_pace_in_a_host),
        QTEST(links_between_gpus_are_known_by_pair),
        QTEST(racks_have_lines),
        QTEST(ranks_are_on_nodes_hosts_and_racks),
        QTEST(rings_follow_the_widest_links),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
