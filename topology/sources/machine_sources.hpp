// Discovers the machine that this process runs on with hwloc and, if wanted, the links between its
// GPUs with their drivers. Communicator creation and the tools use it. hwloc's first load in a
// process takes 10 to 50 ms, most of it for plugins. Any thread may call the functions; they block,
// and leave the binding of threads alone.
//
// Links between AMD's GPUs stand in sysfs, where Linux's driver (KFD) lists them: a few small files
// for each GPU are read, and no GPU is touched. Links between NVIDIA's GPUs come from NVIDIA's
// management library (NVML), which is loaded when it is needed, so that QCCL does not depend on it.
// No context is opened, but the driver wakes the GPUs, which can take seconds if nothing keeps them
// awake.
//
// The ports that lead from this machine to others, and their rates, come from Linux's sysfs, which
// has a few small files for each port.
#pragma once

#include "base/settings.hpp"
#include "topology/graph.hpp"
#include "topology/machine_graph.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace qccl {

struct DiscoveredMachine {
    Graph graph; // vertex 0 is the machine; NICs have no link to a network
    // A sentence for the user if hwloc has failed; the graph is then one package with one NUMA node
    // of the processors that the calling thread may run on. Otherwise empty.
    std::string warning = {};
    // What the environment tells hwloc to read instead of this machine, "HWLOC_XMLFILE=/tmp/m.xml".
    // Otherwise empty.
    std::string instead_of_hardware = {};
};

// hwloc opens no GPU. NVIDIA's driver wakes the GPUs whose links it is asked for, which can take
// seconds. No driver is asked if hwloc reads something other than the machine.
enum class GpuLinks : uint8_t { left_out, asked_for };

// Discovers the machine and never fails: see DiscoveredMachine::warning. hwloc also reads its own
// variables (HWLOC_XMLFILE, HWLOC_SYNTHETIC and others).
DiscoveredMachine discover_machine(GpuLinks links);

// Returns the processors that the calling thread may run on.
CpuSet allowed_cpus();

// Returns the version of hwloc that this library was built with, such as "2.9.0".
std::string hwloc_version();

// ---- AMD

// Returns nothing if there is no such driver. `root` is put before /sys; tests have a tree of their
// own.
GpuDetails find_xgmi(const std::string &root = "/");

// ---- NVIDIA

inline constexpr const char *nvml_library = "libnvidia-ml.so.1";

// Returns the links of the GPUs with these bus ids. Returns nothing if there is no such library,
// and leaves out GPUs that the library does not know.
GpuDetails find_nvlinks(const std::vector<std::string> &bus_ids,
                        const char *library = nvml_library);

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
