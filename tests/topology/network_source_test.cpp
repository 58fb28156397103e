// Tests topology/sources/network_source: the ports that a machine's sysfs describes, on trees such
// as Linux has, also damaged ones.
#include "sysfs_tree.hpp"
#include "tests/kit/qtest.hpp"

#include "topology/machine_graph.hpp"
#include "topology/sources/machine_sources.hpp"

#include <cmath>

using namespace qccl;

namespace {

namespace fs = std::filesystem;

class Sysfs : public SysfsTree {
public:
    void add_interface(const std::string &name, const std::string &speed,
                       const std::string &state = "up", const std::string &type = "1") const {
        write("class/net/" + name + "/speed", speed);
        write("class/net/" + name + "/operstate", state);
        write("class/net/" + name + "/type", type);
    }
    void add_pci_interface(const std::string &name, const std::string &bus_id,
                           const std::string &speed, const std::string &state = "up") const {
        add_interface(name, speed, state);
        link("class/net/" + name + "/device", "devices/pci0000:00/" + bus_id);
    }
    void add_lower(const std::string &upper, const std::string &lower) const {
        link("class/net/" + upper + "/lower_" + lower, "class/net/" + lower);
    }
    void add_rdma(const std::string &name, const std::string &bus_id, const std::string &rate,
                  const std::string &state = "4: ACTIVE", const char *port = "1") const {
        const std::string own = "class/infiniband/" + name;
        if (!has(own + "/device")) link(own + "/device", "devices/pci0000:00/" + bus_id);
        write(own + "/ports/" + port + "/rate", rate);
        write(own + "/ports/" + port + "/state", state);
    }
    NetworkPort port(const std::string &name) const {
        for (const NetworkPort &each : list_ports(root()))
            if (each.name == name) return each;
        throw qtest::Failure{"there is no port " + name};
    }
};

bool is_local(double a, double b) { return std::abs(a - b) < 1e-9; }

void adapters_have_the_rate_that_they_say() {
    const Sysfs sysfs;
    sysfs.add_pci_interface("eth0", "0000:03:00.0", "25000");
    sysfs.add_pci_interface("eth1", "0000:04:00.0", "-1");
    sysfs.add_pci_interface("eth2", "0000:05:00.0", "", "down");
    sysfs.add_interface("ens4", "50000");
    sysfs.link("class/net/ens4/device", "devices/vmbus/4711"); // no PCI device in between
    CHECK(is_local(sysfs.port("eth0").bytes_per_ns, 3.125));
    CHECK(sysfs.port("eth0").bus_id == "0000:03:00.0" && sysfs.port("eth0").is_up);
    CHECK(sysfs.port("eth1").bytes_per_ns == 0);
    CHECK(sysfs.port("eth2").bytes_per_ns == 0 && !sysfs.port("eth2").is_up);
    CHECK(is_local(sysfs.port("ens4").bytes_per_ns, 6.25) && sysfs.port("ens4").bus_id.empty());
    CHECK(is_local(interface_rate("eth0", sysfs.root()), 3.125));
    CHECK(interface_rate("eth9", sysfs.root()) == 0);
}

// A driver's device may lie between the interface and the PCI device.
void virtio_is_a_pci_device() {
    const Sysfs sysfs;
    sysfs.add_interface("eth0", "-1");
    sysfs.link("class/net/eth0/device", "devices/pci0000:00/0000:00:03.0/virtio2");
    CHECK(sysfs.port("eth0").bus_id == "0000:00:03.0");
}

void what_virtual_interfaces_say_is_made_up() {
    const Sysfs sysfs;
    sysfs.add_pci_interface("eth0", "0000:03:00.0", "25000");
    sysfs.add_pci_interface("eth1", "0000:03:00.1", "25000");
    for (const char *name : {"veth0", "tap0", "eth0.7", "br0", "br1", "docker0"})
        sysfs.add_interface(name, "10000");
    for (const char *bridge : {"br0", "br1", "docker0"})
        sysfs.write("class/net/" + std::string(bridge) + "/bridge/bridge_id", "8000");
    sysfs.add_lower("eth0.7", "eth0");
    sysfs.add_lower("br0", "eth0.7");
    sysfs.add_lower("br1", "eth0");
    sysfs.add_lower("br1", "tap0");
    sysfs.add_lower("docker0", "veth0");
    sysfs.add_interface("bond0", "50000");
    sysfs.write("class/net/bond0/bonding/mode", "802.3ad 4");
    sysfs.add_lower("bond0", "eth0");
    sysfs.add_lower("bond0", "eth1");
    sysfs.add_interface("lo", "", "unknown", "772");
    for (const char *name : {"veth0", "tap0", "br1", "docker0", "lo"})
        CHECK(interface_rate(name, sysfs.root()) == 0);
    CHECK(is_local(sysfs.port("eth0.7").bytes_per_ns, 3.125));
    CHECK(sysfs.port("eth0.7").bus_id == "0000:03:00.0");
    CHECK(is_local(sysfs.port("br0").bytes_per_ns, 3.125) && !sysfs.port("br0").is_internal);
    CHECK(is_local(sysfs.port("bond0").bytes_per_ns, 6.25) && sysfs.port("bond0").bus_id.empty());
    CHECK(!sysfs.port("br1").is_internal && sysfs.port("docker0").is_internal);
    CHECK(sysfs.port("lo").is_loopback && !sysfs.port("veth0").is_loopback);
}

void rdma_ports_say_their_rate_in_words() {
    const Sysfs sysfs;
    sysfs.add_rdma("mlx5_0", "0000:1b:00.0", "200 Gb/sec (4X HDR)");
    sysfs.add_rdma("mlx5_0", "0000:1b:00.0", "2.5 Gb/sec (1X SDR)", "1: DOWN", "2");
    const auto ports = list_ports(sysfs.root());
    CHECK(ports.size() == 2);
    CHECK(ports[0].is_rdma() && ports[0].is_up && ports[0].bus_id == "0000:1b:00.0");
    CHECK(is_local(ports[0].bytes_per_ns, 25));
    CHECK(ports[1].number == 2 && !ports[1].is_up);
}

void damaged_trees_leave_rates_unknown() {
    CHECK(list_ports("/nowhere").empty());
    const Sysfs sysfs;
    for (const char *speed : {"fast", "0", "-25000", "1e300", "nan", "inf", ""}) {
        sysfs.add_interface("eth0", speed);
        if (!fs::exists(sysfs.root() + "/sys/class/net/eth0/device"))
            sysfs.link("class/net/eth0/device", "devices/pci0000:00/0000:03:00.0");
        CHECK(sysfs.port("eth0").bytes_per_ns == 0);
    }
    sysfs.add_interface("a", "10000");
    sysfs.add_interface("b", "10000");
    sysfs.add_lower("a", "b");
    sysfs.add_lower("b", "a");
    CHECK(sysfs.port("a").bytes_per_ns == 0 && sysfs.port("a").bus_id.empty());
    fs::create_directory_symlink("/nowhere", sysfs.root() + "/sys/class/net/c");
    CHECK(sysfs.port("c").bytes_per_ns == 0 && !sysfs.port("c").is_up);
}

Graph machine_with_nics() {
    HwlocObject root{.cpus = *CpuSet::parse("f")};
    for (const char *bus_id : {"0000:03:00.0", "0000:1b:00.0"})
        root.children.push_back(
            {.type = HwlocType::pci_device, .bus_id = bus_id, .pci_class = 0x0200});
    return graph_of(root);
}

// Returns each link to the network, such as "nic 0 (0000:03:00.0) tcp 3.125;".
std::string links_to_network(const Graph &graph) {
    std::string text;
    for (const Link &link : graph.links()) {
        if (!is_between_machines(link.link_class)) continue;
        char rate[32];
        std::snprintf(rate, sizeof rate, " %g;", link.bytes_per_ns);
        text += describe(graph, link.from) + " " + std::string(name(link.link_class)) + rate;
    }
    return text;
}

void a_job_uses_rdma_or_else_its_interfaces() {
    const Sysfs sysfs;
    sysfs.add_pci_interface("eth0", "0000:03:00.0", "25000");
    sysfs.add_pci_interface("ib0", "0000:1b:00.0", "200000");
    sysfs.add_interface("veth0", "10000");
    sysfs.add_interface("lo", "", "unknown", "772");
    const Graph machine = machine_with_nics();
    const auto connected = [&](const NetworkChoice &choice) {
        const Graph graph = connect_to_network(machine, list_ports(sysfs.root()), choice);
        CHECK(check(graph, "sysfs"));
        return links_to_network(graph);
    };
    CHECK(connected({}) == "" && connect_to_network(machine, {}, {{"eth0"}}) == machine);
    CHECK(connected({{"lo"}}) == "");
    CHECK(connected({{"eth0"}}) == "nic 0 (0000:03:00.0) tcp 3.125;");
    CHECK(connected({{"eth0", "veth0"}}) == "nic 0 (0000:03:00.0) tcp 3.125;nic 2 (veth0) tcp 0;");
    CHECK(connected({{"eth0", "veth0"}, "veth0"}) == "nic 2 (veth0) tcp 0;");
    sysfs.add_rdma("mlx5_0", "0000:1b:00.0", "200 Gb/sec (4X HDR)");
    CHECK(connected({{"eth0"}}) == "nic 1 (0000:1b:00.0) rdma 25;");
    CHECK(connected({{"eth0"}, "mlx5_0:1"}) == "nic 1 (0000:1b:00.0) rdma 25;");
    CHECK(connected({{"eth0"}, "mlx5_0:2,eth0"}) == "nic 0 (0000:03:00.0) tcp 3.125;");
    for (const char *transports :
         {"all", "tcp,rc", "ud_v", "ib", "\\rc_mlx5", "^tcp", "^sm,tcp", "^rc,ud"})
        CHECK(connected({{"eth0"}, "", transports}) == "nic 1 (0000:1b:00.0) rdma 25;");
    for (const char *transports :
         {"tcp", "tcp,self", "rdma", "^ib", "^tcp,ib", "^rc,ud,dc", "^all"})
        CHECK(connected({{"eth0"}, "", transports}) == "nic 0 (0000:03:00.0) tcp 3.125;");
    sysfs.add_rdma("mlx5_0", "0000:1b:00.0", "200 Gb/sec (4X HDR)", "1: DOWN");
    CHECK(connected({{"eth0"}}) == "nic 0 (0000:03:00.0) tcp 3.125;");
}

void settings_come_before_those_of_ucx() {
    const auto choice = [](const char *devices, const char *transports) {
        return NetworkChoice{{}, devices, transports};
    };
    setenv("UCX_TLS", "tcp", 1);
    setenv("UCX_NET_DEVICES", "eth1", 1);
    Settings settings;
    CHECK(network_choice(settings) == choice("eth1", "tcp"));
    settings.ucx_transports = "rc";
    settings.ucx_devices = "mlx5_0:1";
    CHECK(network_choice(settings) == choice("mlx5_0:1", "rc"));
    unsetenv("UCX_TLS");
    unsetenv("UCX_NET_DEVICES");
    CHECK(network_choice({}) == NetworkChoice());
}

void this_machine_has_a_loopback() {
    bool has_loopback = false;
    for (const NetworkPort &port : list_ports()) has_loopback = has_loopback || port.is_loopback;
    CHECK(has_loopback == fs::exists("/sys/class/net/lo"));
}

} // namespace

int main() {
    const CMUnitTest tests[] = {
        QTEST(adapters_have_the_rate_that_they_say),
        QTEST(virtio_is_a_pci_device),
        QTEST(what_virtual_interfaces_say_is_made_up),
        QTEST(rdma_ports_say_their_rate_in_words),
        QTEST(damaged_trees_leave_rates_unknown),
        QTEST(a_job_uses_rdma_or_else_its_interfaces),
        QTEST(settings_come_before_those_of_ucx),
        QTEST(this_machine_has_a_loopback),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
