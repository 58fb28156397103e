// What this process knows of the machine it runs on. A thread discovers the machine once, or the
// process learns it from the rank of this machine that has discovered it; later communicators reuse
// it. Used where a communicator is created.
#pragma once

#include "base/service_thread.hpp"
#include "base/result.hpp"
#include "base/settings.hpp"
#include "topology/graph.hpp"
#include "topology/network_source.hpp"

#include <cstdint>
#include <memory>
#include <string>

namespace qccl {

// Equal on all ranks of a machine, and on machines that are built alike.
struct NodeTopology {
    Graph graph;      // of the machine, without its name
    std::string text; // text form of the graph, which ranks exchange
    uint64_t hash = 0;
    std::string warning = {}; // of the rank that discovered the machine; empty elsewhere
    std::string origin = {};  // what was read instead of the hardware; empty elsewhere
};
using NodeTopologyRef = std::shared_ptr<const NodeTopology>;

// What a job wants to know of the machine.
struct NodeQuestion {
    std::string interfaces; // QCCL_SOCKET_IFNAME
    NetworkChoice network;  // result of network_choice()
    bool has_gpus = false;  // a rank of the job has one, so that links between GPUs count

    bool operator==(const NodeQuestion &) const = default;
};
NodeQuestion node_question(const Settings &settings, bool has_gpus);

// Returns the topology that the process knows for this question; null: none yet. Any thread.
NodeTopologyRef known_node_topology(const NodeQuestion &question);
// Replaces that topology, without its warning and origin. Any thread.
void keep_node_topology(const NodeQuestion &question, const NodeTopologyRef &topology);

// Returns a machine with one NUMA node, for a topology that cannot be used; `why` becomes part of
// the warning.
NodeTopologyRef plain_node_topology(const char *why);

// Parses a text that another process has written. Returns invalid_argument with a sentence that
// says what is wrong with the text.
Result<NodeTopologyRef> read_node_topology(std::string text);

// Discovers the machine in a thread, unless the process knows it. Never fails: if hwloc fails,
// `warning` says so.
class NodeDiscovery {
public:
    void start(const NodeQuestion &question);
    // Waits for the thread. Never returns null.
    NodeTopologyRef finish();

private:
    NodeQuestion question_;
    NodeTopologyRef found_;
    ServiceThread thread_;
};

} // namespace qccl
