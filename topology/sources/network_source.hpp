// Lists the ports that lead from this machine to others, and their rates, from Linux's sysfs, and
// adds them to the machine's graph. Communicator creation and the tools use it. It reads a few
// small files for each port; any thread may call it.
#pragma once

#include "base/settings.hpp"
#include "topology/graph.hpp"

#include <string>
#include <vector>

namespace qccl {

// A network interface ("eth0") or a port of an RDMA device ("mlx5_0", number 1).
struct NetworkPort {
    std::string name;
    // Of the port's PCI device, or of the only one below a virtual interface; or empty.
    std::string bus_id = {};
    uint32_t number = 0; // of an RDMA device's port, from 1 on; 0: an interface
    bool is_up = false;  // also if an interface does not give its state
    bool is_loopback = false;
    bool is_internal = false; // a bridge between containers or virtual machines of this host
    // Each way; 0: unknown. Linux makes up the rate of a virtual interface (a veth says 10 Gbit/s).
    // So an interface on top of one other interface (VLAN, bridge of one port) has that one's rate,
    // a bond has the rate that it gives, and any other virtual interface has none. Queueing
    // disciplines (tc) do not show here.
    double bytes_per_ns = 0;

    bool is_rdma() const { return number != 0; }
};

// Returns the ports sorted by name. `root` is put before /sys; tests have a tree of their own. With
// the root "/", interfaces are left out that sysfs shows but that belong to another network
// namespace.
std::vector<NetworkPort> list_ports(const std::string &root = "/");

// Returns 0 if the rate is unknown or if there is no such interface.
double interface_rate(const std::string &name, const std::string &root = "/");

// The interfaces, devices and transports that a job uses.
struct NetworkChoice {
    std::vector<std::string> interfaces; // that the job's sockets use
    // In the form of QCCL_UCX_DEVICES ("mlx5_0:1,eth0"); empty or "all": every device that is up.
    std::string devices = {};
    // In the form of UCX_TLS ("tcp", "rc,ud", "^tcp"); empty or "all": every transport.
    std::string transports = {};

    bool operator==(const NetworkChoice &) const = default;
};
// Returns the devices and transports of QCCL_UCX_DEVICES and QCCL_UCX_TLS or, if these are not set,
// of UCX's own variables. The caller adds the interfaces.
NetworkChoice network_choice(const Settings &settings);

// Returns the machine within a network, with a link from each NIC that the job can use to that
// network: the ports with RDMA if any can be used, otherwise the interfaces. A port without a PCI
// device becomes a NIC of the machine. `machine` is a graph of discover_machine(); it is returned
// as it is if no port can be used.
Graph connect_to_network(const Graph &machine, const std::vector<NetworkPort> &ports,
                         const NetworkChoice &choice);

} // namespace qccl
