// This process' knowledge of the machine it runs on: discovered once, by a thread, or learnt from
// the rank of this machine that has discovered it, and kept for later communicators. Used where a
// communicator is made.
#pragma once

#include "base/quiet_thread.hpp"
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
    Graph graph;      // the machine without a name
    std::string text; // the graph's text form, in which ranks pass it on
    uint64_t hash = 0;
    std::string warning = {}; // of the rank that has discovered it; empty elsewhere
    std::string origin = {};  // what it was read from instead of the hardware; likewise
};
using NodeTopologyRef = std::shared_ptr<const NodeTopology>;

// What of the machine matters to a job.
struct NodeQuestion {
    std::string interfaces; // QCCL_SOCKET_IFNAME
    NetworkChoice network;  // as network_choice() has it
    bool has_gpus = false;  // a rank of the job has one, so that links between them count

    bool operator==(const NodeQuestion &) const = default;
};
NodeQuestion node_question(const Settings &settings, bool has_gpus);

// What the process knows that answers it; null: nothing yet. Any thread.
NodeTopologyRef known_node_topology(const NodeQuestion &question);
// Replaces it, and forgets its warning. Any thread.
void keep_node_topology(const NodeQuestion &question, const NodeTopologyRef &topology);

// Stands in for what cannot be used; `why` becomes part of the warning.
NodeTopologyRef plain_node_topology(const char *why);

// Another process has written the text. Returns invalid_argument with a sentence that says what is
// wrong with it.
Result<NodeTopologyRef> read_node_topology(std::string text);

// Discovers the machine in a thread, unless the process knows it. Never fails: where hwloc does,
// `warning` says so.
class NodeDiscovery {
public:
    void start(const NodeQuestion &question);
    // Waits for the thread.
    NodeTopologyRef finish();

private:
    NodeQuestion question_;
    NodeTopologyRef found_;
    QuietThread thread_;
};

} // namespace qccl
