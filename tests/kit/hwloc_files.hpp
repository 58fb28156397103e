// A topology file as hwloc 2 or 3 writes it, of a machine with two packages, a GPU and two NICs.
// Used by tests of code that reads such files.
#pragma once

#include <string>

namespace hwloc_file_parts {

using Text = std::string;

inline Text cpus(const Text &mask, const Text &nodes) {
    return " cpuset=\"" + mask + "\" complete_cpuset=\"" + mask + "\" nodeset=\"" + nodes +
           "\" complete_nodeset=\"" + nodes + "\"";
}

inline Text package(const Text &number, const Text &mask, const Text &nodes, const Text &inside) {
    return "<object type=\"Package\" os_index=\"" + number + "\"" + cpus(mask, nodes) +
           " gp_index=\"1" + number +
           "\"><info name=\"CPUVendor\" value=\"GenuineIntel\"/>"
           "<info name=\"CPUFamilyNumber\" value=\"6\"/>"
           "<info name=\"CPUModelNumber\" value=\"85\"/>"
           "<info name=\"CPUModel\" value=\"Xeon\"/>"
           "<object type=\"NUMANode\" os_index=\"" +
           number + "\"" + cpus(mask, nodes) + " gp_index=\"2" + number + "\"/>" + inside +
           "</object>\n";
}

inline Text pu(const Text &number, const Text &mask, const Text &nodes) {
    return "<object type=\"PU\" os_index=\"" + number + "\"" + cpus(mask, nodes) + " gp_index=\"3" +
           number + "\"/>";
}

inline Text pci(const Text &number, const Text &bus_id, const Text &type, const Text &rate,
                const Text &inside) {
    return "<object type=\"PCIDev\" gp_index=\"" + number + "\" pci_busid=\"" + bus_id +
           "\" pci_type=\"" + type + "\" pci_link_speed=\"" + rate + "\">" + inside + "</object>";
}

inline Text bridge(const Text &number, const Text &bus_id, const Text &below, const Text &depth,
                   const Text &rate, const Text &inside) {
    return "<object type=\"Bridge\" gp_index=\"" + number + "\" bridge_type=\"1-1\" depth=\"" +
           depth + "\" bridge_pci=\"0000:[" + below + "]\" pci_busid=\"" + bus_id +
           "\" pci_type=\"0604 [8086:340a] [0000:0000] 22 00\" pci_link_speed=\"" + rate + "\">" +
           inside + "</object>";
}

inline Text host_bridge(const Text &number, const Text &buses, const Text &inside) {
    return "<object type=\"Bridge\" gp_index=\"" + number +
           "\" bridge_type=\"0-1\" depth=\"0\" bridge_pci=\"0000:[" + buses + "]\">" + inside +
           "</object>";
}

inline Text device(const Text &number, const Text &name, const Text &type) {
    return "<object type=\"OSDev\" gp_index=\"" + number + "\" name=\"" + name +
           "\" osdev_type=\"" + type + "\"/>";
}

} // namespace hwloc_file_parts

// Package 0 has a slot with a GPU and an InfiniBand adapter behind a switch, package 1 a NIC behind
// a bridge. The graphics adapter of the machine's management controller is not counted as a GPU.
inline std::string hwloc_file(const std::string &version = "2.0") {
    const bool is_newer = version[0] == '3';
    const std::string net = is_newer ? "16" : "2", rdma = is_newer ? "48" : "3";
    using namespace hwloc_file_parts;
    const std::string gpu = pci("40", "0000:03:00.0", "0302 [10de:2330] [10de:16c1] a1 00", "31.5",
                                "<info name=\"PCIDevice\" value=\"GH100\"/>");
    const std::string adapter =
        pci("41", "0000:04:00.0", "0207 [15b3:1021] [15b3:0042] 00 00", "31.5",
            device("50", "ib0", net) + device("51", "mlx5_0", rdma));
    const std::string pcie_switch =
        bridge("60", "0000:00:01.0", "01-04", "1", "63.015385",
               bridge("61", "0000:01:00.0", "02-04", "2", "63.015385",
                      bridge("62", "0000:02:00.0", "03-03", "3", "31.5", gpu) +
                          bridge("63", "0000:02:01.0", "04-04", "3", "31.5", adapter)));
    const std::string display =
        bridge("64", "0000:00:02.0", "05-05", "1", "0",
               pci("42", "0000:05:00.0", "0300 [1a03:2000] [1a03:2000] 41 00", "0.000000", ""));
    const std::string ethernet =
        bridge("65", "0000:40:01.0", "41-41", "1", "7.876923",
               pci("43", "0000:41:00.0", "0200 [8086:1572] [8086:0000] 02 00", "0.000000",
                   device("52", "eth0", net)));
    return "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<!DOCTYPE topology SYSTEM \"hwloc2.dtd\">\n"
           "<topology version=\"" +
           version + "\">\n<object type=\"Machine\" os_index=\"0\"" + cpus("0x0000000f", "0x3") +
           " allowed_cpuset=\"0x0000000f\" allowed_nodeset=\"0x3\" gp_index=\"1\">"
           "<info name=\"HostName\" value=\"n1\"/>\n" +
           package("0", "0x00000003", "0x1",
                   pu("0", "0x00000001", "0x1") + pu("1", "0x00000002", "0x1") +
                       host_bridge("70", "00-05", pcie_switch + display)) +
           package("1", "0x0000000c", "0x2",
                   pu("2", "0x00000004", "0x2") + pu("3", "0x00000008", "0x2") +
                       host_bridge("71", "40-41", ethernet)) +
           "</object>\n</topology>\n";
}
