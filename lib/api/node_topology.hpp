// This process' knowledge of the machine it runs on: discovered once, by a thread, or learnt from
// the rank of this machine that has discovered it, and kept for later communicators. Used where a
// communicator is made.
#pragma once

#include "base/quiet_thread.hpp"
#include "base/result.hpp"
#include "base/settings.hpp"
#include "topology/graph.hpp"

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

// Which interfaces, devices and transports the job may use, as the settings have them.
struct NodeNetwork {
    std::string interfaces; // QCCL_SOCKET_IFNAME
    std::string devices;    // QCCL_UCX_DEVICES, else UCX_NET_DEVICES
    std::string transports; // QCCL_UCX_TLS, else UCX_TLS

    bool operator==(const NodeNetwork &) const = default;
};

// Unset settings leave it to UCX's own variables.
NodeNetwork node_network(const Settings &settings);

// What the process knows with these settings; null: nothing yet. Any thread.
NodeTopologyRef known_node_topology(const NodeNetwork &network);
// Replaces it, and forgets its warning. Any thread.
void keep_node_topology(const NodeNetwork &network, const NodeTopologyRef &topology);

// Stands in for what cannot be used; `why` becomes part of the warning.
NodeTopologyRef plain_node_topology(const char *why);

// Another process has written the text. Returns invalid_argument with a sentence that says what is
// wrong with it.
Result<NodeTopologyRef> read_node_topology(std::string text);

// Discovers the machine in a thread, unless the process knows it. Never fails: where hwloc does,
// `warning` says so.
class NodeDiscovery {
public:
    void start(const NodeNetwork &network);
    // Waits for the thread.
    NodeTopologyRef finish();

private:
    NodeNetwork network_;
    NodeTopologyRef found_;
    QuietThread thread_;
};

} // namespace qccl
