// The ports that lead from this machine to others, and their rates, as Linux's sysfs has them. Used
// where a communicator is made and by the tools. Reads a few small files for each port; any thread
// may call it.
#pragma once

#include "base/settings.hpp"
#include "topology/graph.hpp"

#include <string>
#include <vector>

namespace qccl {

// A network interface ("eth0") or a port of an RDMA device ("mlx5_0", number 1).
struct NetworkPort {
    std::string name;
    // Of its PCI device, or of the only one that a virtual interface stands on; or empty.
    std::string bus_id = {};
    uint32_t number = 0; // of an RDMA device's port, from 1 on; 0: an interface
    bool is_up = false;  // also where an interface does not say so
    bool is_loopback = false;
    bool is_internal = false; // a bridge between containers or virtual machines of this host
    // Each way; 0: unknown. Of virtual interfaces the rate that Linux gives is made up (a veth says
    // 10 Gbit/s): one that stands on one other interface (VLAN, bridge of one port) has that one's,
    // a bond has what it says, any other is unknown. Queueing disciplines (tc) do not show here.
    double bytes_per_ns = 0;

    bool is_rdma() const { return number != 0; }
};

// Sorted by name. `root` stands before /sys; tests have a tree of their own. With the root "/",
// interfaces are left out that another network namespace has in this one's sysfs.
std::vector<NetworkPort> list_ports(const std::string &root = "/");

// 0: unknown, or there is no such interface.
double interface_rate(const std::string &name, const std::string &root = "/");

// What a job uses.
struct NetworkChoice {
    std::vector<std::string> interfaces; // where its sockets are
    // As QCCL_UCX_DEVICES has it ("mlx5_0:1,eth0"); empty or "all": every device that is up.
    std::string devices = {};
    // As UCX_TLS has it ("tcp", "rc,ud", "^tcp"); empty or "all": every transport.
    std::string transports = {};

    bool operator==(const NetworkChoice &) const = default;
};
// The devices and transports of QCCL_UCX_DEVICES and QCCL_UCX_TLS or, where these leave it open, of
// UCX's own variables. The interfaces are still to be named.
NetworkChoice network_choice(const Settings &settings);

// The machine within a network, with a link to it from each NIC that the job can use: where ports
// with RDMA are up those, else the interfaces. One without a PCI device becomes a NIC of the
// machine. `machine` as discover_machine() gives it, and as it is where no port leads anywhere.
Graph connect_to_network(const Graph &machine, const std::vector<NetworkPort> &ports,
                         const NetworkChoice &choice);

} // namespace qccl
