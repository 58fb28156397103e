// Makes the graph of a job from the graphs of its machines, finds where a rank is, and derives from
// the graph what the planner needs: the locations of the ranks and the figures of the links between
// them. Communicator creation uses it, and the tools do so for machines that are not there. Pure:
// equal machines give an equal graph and equal figures on every rank. The planner's rates are bytes
// per ns each way, less what headers take.
#pragma once

#include "base/settings.hpp"
#include "plan/cost.hpp"
#include "plan/explain.hpp"
#include "plan/step_counts.hpp"
#include "topology/graph.hpp"

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace qccl {

// ---- Graph of the job

struct JobTopology {
    Graph graph;
    std::vector<uint32_t> places; // by rank: a GPU, a NUMA node, or the machine
};

// A machine of the job: its graph, with or without a network as vertex 0, its name, and the name of
// its rack, which may be empty.
struct JobMachine {
    const Graph *graph = nullptr;
    std::string name;
    std::string rack;
};

// The job's graph, and the numbers that the machines' vertices have in it.
class JobGraph {
public:
    // A job of one machine has that machine's graph. For several machines, vertex 0 is the network,
    // which contains the machines in this order; if their racks differ, each rack is a network
    // within it. A NIC that leads to no network is left out if the machine's graph has a network. A
    // machine without a network is linked to the job's network itself, with class tcp at an unknown
    // rate. Racks are linked in the same way.
    explicit JobGraph(std::span<const JobMachine> machines);

    const Graph &graph() const { return graph_; }
    Graph take() && { return std::move(graph_); }
    // Returns the number of a vertex of a machine's graph; that of the machine if the vertex was
    // left out.
    uint32_t number_of(size_t machine, uint32_t vertex) const;

private:
    void add_machine(const JobMachine &machine, uint32_t network);
    uint32_t network_of(const JobMachine &machine);

    Graph graph_;
    std::vector<std::string> racks_; // of graph_'s vertices 1, 2, ...
    std::vector<std::vector<uint32_t>> numbers_;
};

// Returns on one machine's graph the GPU with this bus id, otherwise the smallest NUMA node that
// has all of these processors, otherwise the machine.
uint32_t place_of(const Graph &graph, const CpuSet &cpus, std::string_view bus_id);

// Returns the number of the NUMA node that contains the place; nothing if there is none, or if the
// machine has only one.
std::optional<uint32_t> numa_number(const Graph &graph, uint32_t place);

// ---- Figures for the planner

// The link between hosts. On each host with ranks the fastest NIC counts; over RDMA, NICs that are
// as fast and nearest to other ranks count together with it. The slowest host decides.
struct RemoteLink {
    LinkClass link_class = LinkClass::tcp;
    std::optional<double> bytes_per_ns;      // nothing: a host's NICs give no rate
    std::optional<double> rank_bytes_per_ns; // the share of one rank; nothing: all
    double latency_ns = 0;                   // of the NICs' links, on top of the software's
};
// Returns nothing if all ranks are on one host.
std::optional<RemoteLink> remote_link(const JobTopology &job);
// Replaces what the planner would assume. QCCL_LINK_RATE and QCCL_LINK_LATENCY take precedence.
void apply_link(const RemoteLink &link, const Settings &settings, CostModel &speeds);

// The slowest path between ranks of one host whose numbers follow each other.
struct LocalLink {
    LinkClass link_class = LinkClass::shared_memory;
    std::optional<double> bytes_per_ns; // nothing: unknown
};
// Returns nothing if no host has two such ranks.
std::optional<LocalLink> local_link(const JobTopology &job);
// Returns the paths between the ranks of each host, if all ranks are on GPUs, and the uplinks of
// the racks, if the hosts with ranks are in several racks.
SharedLinks shared_links(const JobTopology &job);

// Returns a function that gives the class of the path between any two ranks. The function holds
// `job` and keeps what it has found, so one thread at a time may call it.
LinkClassOf link_class_of(std::shared_ptr<const JobTopology> job);

// Whether each rank is on a GPU.
bool are_on_gpus(const JobTopology &job);

// Returns the location of each rank, by rank; equal nodes, hosts and racks have the same number
// throughout. Empty if all ranks are in one place. A rack is the network that contains the machine.
std::vector<RankLocation> location(const JobTopology &job);
// Returns the orders in which rings pass the ranks. The first one has the greatest rate at its
// narrowest hop.
RingOrders rings_of(const JobTopology &job);

} // namespace qccl
