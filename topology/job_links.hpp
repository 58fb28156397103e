// Derives from the graph of a job what the planner needs: where the ranks are, and the figures of
// the links between them. Communicator creation uses it, and the tools do so for machines that are
// not there. Pure functions; rates are bytes per ns each way, less what headers take.
#pragma once

#include "base/settings.hpp"
#include "plan/cost.hpp"
#include "plan/link_bytes.hpp"
#include "plan/shared_links.hpp"
#include "topology/job_graph.hpp"

#include <memory>
#include <optional>

namespace qccl {

// The link between hosts. On each host with ranks the fastest NIC counts; over RDMA, NICs that are
// as fast and nearest to other ranks count together with it. The slowest host decides.
struct FarLink {
    LinkClass link_class = LinkClass::tcp;
    std::optional<double> bytes_per_ns;      // nothing: a host's NICs give no rate
    std::optional<double> rank_bytes_per_ns; // the share of one rank; nothing: all
    double latency_ns = 0;                   // of the NICs' links, on top of the software's
};
// Returns nothing if all ranks are on one host.
std::optional<FarLink> far_link(const JobTopology &job);
// Replaces what the planner would assume. QCCL_LINK_RATE and QCCL_LINK_LATENCY take precedence.
void take_link(const FarLink &link, const Settings &settings, CostModel &speeds);

// The slowest path between ranks of one host whose numbers follow each other.
struct NearLink {
    LinkClass link_class = LinkClass::shared_memory;
    std::optional<double> bytes_per_ns; // nothing: unknown
};
// Returns nothing if no host has two such ranks.
std::optional<NearLink> near_link(const JobTopology &job);
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
