// What the graph of a job says of its ranks' places and of the links between them, in the numbers
// by which the planner chooses. Used where a communicator is made, and by the tools for machines
// that are not there. Pure functions; rates are bytes per ns each way, less what headers take.
#pragma once

#include "base/settings.hpp"
#include "plan/cost.hpp"
#include "plan/link_bytes.hpp"
#include "plan/shared_links.hpp"
#include "topology/job_graph.hpp"

#include <memory>
#include <optional>

namespace qccl {

// Between hosts: of each host with ranks the fastest NIC counts, over RDMA together with those as
// fast that are nearest to other ranks; and of the hosts the slowest.
struct FarLink {
    LinkClass link_class = LinkClass::tcp;
    std::optional<double> bytes_per_ns;      // nothing: a host's NICs say no rate
    std::optional<double> rank_bytes_per_ns; // what one rank has of it; nothing: all
    double latency_ns = 0;                   // that the NICs' links add to the software's
};
// Nothing: all ranks are on one host.
std::optional<FarLink> far_link(const JobTopology &job);
// Replaces what the planner would suppose. QCCL_LINK_RATE and QCCL_LINK_LATENCY stand.
void take_link(const FarLink &link, const Settings &settings, Speeds &speeds);

// The slowest between ranks of one host whose numbers follow each other.
struct NearLink {
    LinkClass link_class = LinkClass::shared_memory;
    std::optional<double> bytes_per_ns; // nothing: unknown
};
// Nothing: no host has two ranks.
std::optional<NearLink> near_link(const JobTopology &job);
// Within each host, where all ranks are on GPUs, and the ways between its ranks; and the lines of
// the racks, where hosts with ranks are in several.
SharedLinks shared_links(const JobTopology &job);

// The class of the path between each two ranks. Holds `job`.
LinkClassOf link_class_of(std::shared_ptr<const JobTopology> job);

// Whether each rank is on a GPU.
bool are_on_gpus(const JobTopology &job);

// By rank; equal nodes, hosts and racks have one number throughout. Empty where all ranks are in
// one place. A rack is the network that contains the machine.
std::vector<Whereabouts> whereabouts(const JobTopology &job);
// The orders in which rings pass the ranks: first that of the greatest rate at its narrowest hop.
RingOrders rings_of(const JobTopology &job);

} // namespace qccl
