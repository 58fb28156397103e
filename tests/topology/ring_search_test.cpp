// Tests find_path() of topology/graph, and topology/rank_order: the paths, rings and rank orders
// that are found on machines as they are built.
#include "tests/kit/qtest.hpp"

#include "topology/rank_order.hpp"

#include <algorithm>
#include <numeric>

using namespace qccl;

namespace {

using Numbers = std::vector<uint32_t>;

// Builds machines of NUMA nodes with PCI switches, which have GPUs below.
class Builder {
public:
    uint32_t machine(uint32_t parent = no_vertex) {
        return graph.add({.kind = VertexKind::machine, .parent = parent});
    }
    uint32_t numa(uint32_t machine, double bytes_per_ns = 20) {
        const uint32_t number = graph.add({.kind = VertexKind::numa, .parent = machine});
        graph.connect({machine, number, LinkClass::cpu_interconnect, bytes_per_ns});
        graph.connect({number, number, LinkClass::shared_memory});
        return number;
    }
    uint32_t below(VertexKind kind, uint32_t parent, double bytes_per_ns = 24) {
        const uint32_t number =
            graph.add({.kind = kind, .parent = parent, .bus_id = std::to_string(devices_++)});
        graph.connect({parent, number, LinkClass::pcie, bytes_per_ns, 0, 16});
        return number;
    }
    void link(uint32_t from, uint32_t to, LinkClass link_class, double bytes_per_ns) {
        graph.connect({from, to, link_class, bytes_per_ns});
    }

    Graph graph;

private:
    uint32_t devices_ = 0;
};

// Returns two quads of GPUs, each fully linked by xGMI, on two NUMA nodes. The GPUs' numbers
// alternate between the quads.
Builder two_quads(std::array<Numbers, 2> &quads) {
    Builder b;
    const uint32_t machine = b.machine();
    const std::array<uint32_t, 2> numas = {b.numa(machine), b.numa(machine)};
    for (uint32_t i = 0; i < 8; i++) {
        const uint32_t pci = b.below(VertexKind::pci, numas[i % 2]);
        quads[i % 2].push_back(b.below(VertexKind::gpu, pci));
    }
    for (const Numbers &quad : quads)
        for (size_t i = 0; i < quad.size(); i++)
            for (size_t j = 0; j < i; j++) b.link(quad[i], quad[j], LinkClass::xgmi, 46);
    return b;
}

void paths_prefer_width_then_few_links() {
    std::array<Numbers, 2> quads;
    const Graph graph = two_quads(quads).graph;
    const Capacities capacities(graph);
    const auto near = find_path(graph, capacities, quads[0][0], quads[0][1]);
    CHECK(near && near->link_class == LinkClass::xgmi && near->hops.size() == 1);
    CHECK(near->bytes_per_ns == 46);
    const auto far = find_path(graph, capacities, quads[0][0], quads[1][0]);
    CHECK(far && far->link_class == LinkClass::cpu_interconnect && far->bytes_per_ns == 20);
    CHECK(far->hops.size() == 6); // pci, numa, machine, numa, pci, gpu: never through a third GPU
    Capacities used = capacities;
    for (const Hop &hop : near->hops) used.take(hop, 40);
    const auto around = find_path(graph, used, quads[0][0], quads[0][1]);
    CHECK(around && around->link_class == LinkClass::pcie && around->bytes_per_ns == 24);
    CHECK(find_path(graph, used, quads[0][1], quads[0][0])->link_class == LinkClass::xgmi);
}

bool are_neighbours(const Numbers &ring, const Numbers &group) {
    size_t borders = 0;
    for (size_t i = 0; i < ring.size(); i++)
        borders += std::ranges::count(group, ring[i]) !=
                   std::ranges::count(group, ring[(i + 1) % ring.size()]);
    return borders == 2;
}

void rings_stay_on_xgmi_as_long_as_they_can() {
    std::array<Numbers, 2> quads;
    const Graph graph = two_quads(quads).graph;
    const auto rings = find_rings(graph, graph.of_kind(VertexKind::gpu));
    CHECK(!rings.empty());
    for (const Ring &ring : rings) {
        CHECK(are_neighbours(ring.vertices, quads[0]));
        CHECK(ring.bytes_per_ns == 20);
    }
    CHECK(rings.size() == 1); // no capacity is left between the NUMA nodes
}

void a_fully_linked_quad_has_edge_disjoint_rings() {
    std::array<Numbers, 2> quads;
    const Graph graph = two_quads(quads).graph;
    const auto rings = find_rings(graph, quads[0]);
    CHECK(rings.size() >= 2);
    for (size_t i = 0; i < 2; i++) CHECK(rings[i].bytes_per_ns == 46);
    CHECK(rings[0].vertices == quads[0]);
    CHECK(find_rings(graph, quads[0]) == rings);
}

// Returns the best rate of all orders of a ring.
double best_rate(const Graph &graph, Numbers vertices) {
    std::ranges::sort(vertices);
    const Capacities capacities(graph);
    double best = 0;
    do best = std::max(best, ring_rate(graph, capacities, vertices));
    while (std::next_permutation(vertices.begin() + 1, vertices.end()));
    return best;
}

void no_other_order_is_faster() {
    for (uint32_t variant = 0; variant < 12; variant++) {
        Builder b;
        const uint32_t machine = b.machine();
        Numbers gpus;
        for (uint32_t i = 0; i < 3; i++) {
            const uint32_t numa = b.numa(machine, 8 + 7.0 * (variant % 3));
            const uint32_t pci = b.below(VertexKind::pci, numa, 12 + 12.0 * (variant % 2));
            for (uint32_t j = 0; j < 2; j++) gpus.push_back(b.below(VertexKind::gpu, pci, 24));
        }
        for (uint32_t i = 0; i < variant; i++)
            b.link(gpus[i * 5 % 6],
                   gpus[(i * 7 + 1) % 6 == i * 5 % 6 ? (i * 7 + 2) % 6 : (i * 7 + 1) % 6],
                   LinkClass::nvlink, 25.0 * (1 + i % 2));
        CHECK(check(b.graph, "variant"));
        const auto rings = find_rings(b.graph, gpus);
        CHECK(rings[0].bytes_per_ns == best_rate(b.graph, gpus));
    }
}

void a_switch_gives_one_ring_in_order() {
    Builder b;
    const uint32_t machine = b.machine(), numa = b.numa(machine);
    const uint32_t nvswitch = b.below(VertexKind::nvswitch, numa);
    Numbers gpus;
    for (uint32_t i = 0; i < 8; i++) {
        gpus.push_back(b.below(VertexKind::gpu, numa));
        b.link(gpus.back(), nvswitch, LinkClass::nvswitch, 450);
    }
    const auto rings = find_rings(b.graph, gpus);
    CHECK(rings[0].vertices == gpus && rings[0].bytes_per_ns == 450);
    CHECK(find_path(b.graph, Capacities(b.graph), gpus[0], gpus[1])->link_class ==
          LinkClass::nvswitch);
}

void vertices_out_of_reach_keep_their_order() {
    Graph graph;
    const uint32_t machine = graph.add({.kind = VertexKind::machine});
    Numbers gpus;
    for (uint32_t i = 0; i < 3; i++) {
        gpus.push_back(graph.add({.kind = VertexKind::gpu, .parent = machine, .number = i}));
        if (i > 0) graph.connect({gpus[i - 1], gpus[i], LinkClass::nvlink, 25});
    }
    graph.connect({machine, gpus[0], LinkClass::pcie, 12});
    CHECK(find_rings(graph, gpus) == std::vector<Ring>({{gpus, 0}}));
}

// Machines with four GPUs and a NIC next to each pair, on one network with racks.
struct Cluster {
    Builder b;
    std::vector<Numbers> gpus, nics; // by machine
};

Cluster cluster(const Numbers &rack_of_machine) {
    Cluster c;
    const uint32_t network = c.b.graph.add({.kind = VertexKind::network});
    Numbers racks;
    for (uint32_t i = 0; i < 2; i++) {
        racks.push_back(c.b.graph.add({.kind = VertexKind::network, .parent = network}));
        c.b.link(racks[i], network, LinkClass::rdma, 100);
    }
    for (const uint32_t rack : rack_of_machine) {
        const uint32_t machine = c.b.machine(racks[rack]);
        c.b.link(machine, racks[rack], LinkClass::tcp, 0); // so that a machine is connected
        Numbers &gpus = c.gpus.emplace_back(), &nics = c.nics.emplace_back();
        for (uint32_t i = 0; i < 2; i++) {
            const uint32_t pci = c.b.below(VertexKind::pci, c.b.numa(machine));
            for (uint32_t j = 0; j < 2; j++) gpus.push_back(c.b.below(VertexKind::gpu, pci));
            nics.push_back(c.b.below(VertexKind::nic, pci));
            c.b.link(nics.back(), racks[rack], LinkClass::rdma, 25);
        }
        for (size_t i = 0; i < 4; i++) c.b.link(gpus[i], gpus[(i + 1) % 4], LinkClass::nvlink, 50);
    }
    return c;
}

void every_nic_of_a_machine_is_used() {
    const Cluster c = cluster({0, 0});
    Numbers places = c.gpus[0];
    places.insert(places.end(), c.gpus[1].begin(), c.gpus[1].end());
    const RankOrder order = order_ranks(c.b.graph, places);
    CHECK(order.nics == Numbers({c.nics[0][0], c.nics[0][0], c.nics[0][1], c.nics[0][1],
                                 c.nics[1][0], c.nics[1][0], c.nics[1][1], c.nics[1][1]}));
    CHECK(order.rings.size() == 2);
    for (const RankRing &ring : order.rings) {
        CHECK(ring.is_rate_known);
        CHECK(ring.ranks.size() == 8 && ring.ranks[0] == 0);
        CHECK(ring.bytes_per_ns == 24); // PCIe between GPUs and their NICs is not counted
    }
}

void machines_of_a_rack_are_neighbours() {
    const Cluster c = cluster({0, 1, 0, 1});
    Numbers places;
    for (uint32_t i = 0; i < 16; i++) places.push_back(c.gpus[i % 4][i / 4]); // dealt out
    const RankOrder order = order_ranks(c.b.graph, places);
    for (const RankRing &ring : order.rings) {
        Numbers racks;
        for (const uint32_t rank : ring.ranks) racks.push_back(rank % 2);
        size_t borders = 0;
        for (size_t i = 0; i < racks.size(); i++) borders += racks[i] != racks[(i + 1) % 16];
        CHECK(borders == 2);
    }
}

void ranks_of_a_numa_node_are_neighbours() {
    Builder b;
    const uint32_t machine = b.machine();
    const Numbers numas = {b.numa(machine), b.numa(machine)};
    const Numbers places = {numas[0], numas[1], numas[0], numas[1]};
    const RankOrder order = order_ranks(b.graph, places);
    CHECK(order.rings[0].ranks == Numbers({0, 2, 1, 3}));
    CHECK(order.nics == Numbers(4, no_vertex));
}

} // namespace

int main() {
    const CMUnitTest tests[] = {
        QTEST(paths_prefer_width_then_few_links),
        QTEST(rings_stay_on_xgmi_as_long_as_they_can),
        QTEST(a_fully_linked_quad_has_edge_disjoint_rings),
        QTEST(no_other_order_is_faster),
        QTEST(a_switch_gives_one_ring_in_order),
        QTEST(vertices_out_of_reach_keep_their_order),
        QTEST(every_nic_of_a_machine_is_used),
        QTEST(machines_of_a_rack_are_neighbours),
        QTEST(ranks_of_a_numa_node_are_neighbours),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
