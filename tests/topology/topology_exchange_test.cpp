// Tests TopologyExchange of topology/sources/topology_source: ranks with different knowledge of
// their machines, or with none, end with the same graph.
#include "tests/kit/qtest.hpp"

#include "bootstrap/bootstraps.hpp"
#include "topology/graph.hpp"
#include "topology/machine_graph.hpp"
#include "topology/sources/topology_source.hpp"

#include <chrono>
#include <thread>

using namespace qccl;

namespace {

MachineTopologyRef node_of(const Graph &graph) {
    auto node = read_machine_topology(print_graph_text(graph));
    CHECK_OK(node);
    return *node;
}

// Returns a machine with `packages` packages, none of them with a processor of this machine.
MachineTopologyRef node_with(uint32_t packages) {
    HwlocObject root;
    for (uint32_t i = 0; i < packages; i++) {
        CpuSet cpus;
        for (uint32_t cpu = 0; cpu < 64; cpu++) cpus.add(1000 + 64 * i + cpu);
        root.children.push_back(
            {.type = HwlocType::package,
             .number = i,
             .cpus = cpus,
             .name = "a processor of some model",
             .children = {{.type = HwlocType::numa, .number = i, .cpus = cpus}}});
    }
    return node_of(graph_of(root));
}

// Runs an exchange with one thread for each rank.
class Job {
public:
    explicit Job(std::vector<RankHost> hosts)
        : hosts_(std::move(hosts)), known(hosts_.size()), memory(hosts_.size()),
          results(hosts_.size(), Error::make(Code::internal_error, "not run")) {
        for (auto &each : memory) each.resize(size_t{1} << 16);
    }

    void run() {
        auto bootstraps =
            create_local_bootstraps(static_cast<uint32_t>(hosts_.size()), std::chrono::seconds(60));
        std::vector<std::thread> threads;
        for (uint32_t rank = 0; rank < hosts_.size(); rank++)
            threads.emplace_back([this, rank, &bootstrap = *bootstraps[rank]] {
                TopologyExchange exchange(rank, hosts_, gpus.empty() ? "" : gpus[rank]);
                results[rank] = exchange.run(known[rank], memory[rank], memory[leader(rank)],
                                             [&](const void *mine, void *all, size_t bytes) {
                                                 return bootstrap.all_gather(mine, all, bytes);
                                             });
                nodes[rank] = exchange.node();
            });
        for (std::thread &thread : threads) thread.join();
    }
    const JobTopology &topology(uint32_t rank) const {
        CHECK_OK(results[rank]);
        return *results[rank]->job;
    }

private:
    uint32_t leader(uint32_t rank) const {
        for (uint32_t first = 0;; first++)
            if (hosts_[first].host == hosts_[rank].host) return first;
    }

    std::vector<RankHost> hosts_;

public:
    std::vector<MachineTopologyRef> known; // by rank
    std::vector<std::string> gpus;         // their bus ids; empty: no rank has a GPU
    std::vector<std::vector<std::byte>> memory;
    std::vector<Result<AgreedTopology>> results;
    std::vector<MachineTopologyRef> nodes = std::vector<MachineTopologyRef>(hosts_.size());
};

void check_alike(const Job &job, uint32_t ranks) {
    CHECK(check(job.topology(0).graph, "job"));
    for (uint32_t rank = 1; rank < ranks; rank++) {
        CHECK(job.topology(rank).graph == job.topology(0).graph);
        CHECK(job.topology(rank).places == job.topology(0).places);
        CHECK(job.results[rank]->numas == job.results[0]->numas);
    }
}

void ranks_of_a_host_learn_from_the_first() {
    Job job({{0, "a", ""}, {0, "a", ""}, {0, "a", ""}});
    job.known[0] = node_with(2);
    job.run();
    check_alike(job, 3);
    CHECK(job.topology(2).graph.of_kind(VertexKind::package).size() == 2);
    CHECK(job.topology(2).graph.vertex(0).name == "a");
    CHECK(job.nodes[2]->text == job.known[0]->text && job.nodes[2]->hash == job.known[0]->hash);
}

void hosts_that_differ_exchange_their_graphs() {
    Job job({{0, "a", ""}, {1, "b", ""}, {0, "a", ""}, {2, "c", ""}, {1, "b", ""}, {1, "b", ""}});
    job.known[0] = node_with(1);
    job.known[1] = node_with(40); // more than one piece
    job.known[3] = node_with(1);
    CHECK(job.known[1]->text.size() > 3 * 4096 && job.known[1]->text.size() < 65536);
    job.run();
    check_alike(job, 6);
    const Graph &graph = job.topology(3).graph;
    const auto machines = graph.of_kind(VertexKind::machine);
    CHECK(machines.size() == 3);
    const std::vector<size_t> packages = {1, 40, 1};
    for (size_t i = 0; i < 3; i++) {
        CHECK(graph.vertex(machines[i]).name == std::string(1, static_cast<char>('a' + i)));
        CHECK(graph.children(machines[i]).size() == packages[i]);
    }
    CHECK(job.topology(0).places == std::vector<uint32_t>({machines[0], machines[1], machines[0],
                                                           machines[2], machines[1], machines[1]}));
}

// A rank whose GPU is not in the graph is placed as if it had none.
void ranks_are_on_their_gpus() {
    Job job({{0, "a", ""}, {0, "a", ""}, {0, "a", ""}});
    HwlocObject root;
    root.children = {{.type = HwlocType::package, .children = {{.type = HwlocType::numa}}}};
    HwlocObject bridge{.type = HwlocType::host_bridge};
    for (const char *id : {"0000:1b:00.0", "0000:43:00.0"})
        bridge.children.push_back({.type = HwlocType::pci_device,
                                   .bus_id = id,
                                   .pci_class = 0x0302,
                                   .pci_vendor = 0x10DE});
    root.children.push_back(bridge);
    job.known[0] = node_of(graph_of(root));
    job.gpus = {"0000:43:00.0", "0000:1b:00.0", "0000:99:00.0"};
    job.run();
    check_alike(job, 3);
    const auto gpus = job.topology(0).graph.of_kind(VertexKind::gpu);
    CHECK(job.topology(0).places[0] == gpus.at(1) && job.topology(0).places[1] == gpus.at(0));
    CHECK(job.topology(0).graph.vertex(job.topology(0).places[2]).kind != VertexKind::gpu);
}

void what_a_rank_knew_before_gives_way_to_its_leaders() {
    Job job({{0, "a", ""}, {0, "a", ""}});
    job.known = {node_with(3), node_with(2)};
    job.run();
    check_alike(job, 2);
    CHECK(job.nodes[1]->text == job.known[0]->text);
}

void a_topology_that_has_no_room_gives_way_to_a_plain_machine() {
    Job job({{0, "a", ""}, {0, "a", ""}});
    for (auto &each : job.memory) each.resize(600);
    job.known[0] = node_with(40);
    job.run();
    check_alike(job, 2);
    CHECK(job.topology(1).graph.of_kind(VertexKind::numa).size() == 1);
    CHECK(job.nodes[0]->warning ==
          "this machine counts as one NUMA node: its topology is larger than QCCL_ARENA");
}

void texts_of_other_ranks_are_hostile() {
    const std::string good = node_with(2)->text;
    CHECK(read_machine_topology(good));
    for (size_t bytes = 0; bytes + 1 < good.size(); bytes += 5) {
        const auto cut = read_machine_topology(good.substr(0, bytes));
        CHECK(!cut || (*cut)->graph.vertices().size() <= 5);
        std::string flipped = good;
        flipped[bytes] = static_cast<char>(flipped[bytes] ^ 0x15);
        const auto other = read_machine_topology(flipped);
        CHECK(!other || check((*other)->graph, "flipped"));
    }
}

} // namespace

int main() {
    const CMUnitTest tests[] = {
        QTEST(ranks_of_a_host_learn_from_the_first),
        QTEST(hosts_that_differ_exchange_their_graphs),
        QTEST(ranks_are_on_their_gpus),
        QTEST(what_a_rank_knew_before_gives_way_to_its_leaders),
        QTEST(a_topology_that_has_no_room_gives_way_to_a_plain_machine),
        QTEST(texts_of_other_ranks_are_hostile),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
