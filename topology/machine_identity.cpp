// Puts the processor, the cores and the rates of the ports into one name.
#include "topology/machine_identity.hpp"

#include "base/short_text.hpp"
#include "topology/network_source.hpp"

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <set>

#include <sys/sysinfo.h>

namespace qccl {

std::string processor_name() {
    std::ifstream info("/proc/cpuinfo");
    for (std::string line; std::getline(info, line);)
        if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
    return "a processor without a name";
}

// Returns "ports of 25 and 200 Gbit/s", each rate once.
static std::string ports_in_words() {
    constexpr double gigabits = 8; // Gbit/s of one byte per nanosecond
    std::set<double> rates;
    for (const NetworkPort &port : list_ports())
        if (!port.is_loopback && port.bytes_per_ns > 0) rates.insert(port.bytes_per_ns * gigabits);
    if (rates.empty()) return "no port of a known rate";
    std::string text = "ports of ";
    size_t left = rates.size();
    for (const double rate : rates) {
        char number[32];
        std::snprintf(number, sizeof number, "%g", rate);
        text += number;
        left--;
        text += left == 0 ? " Gbit/s" : left == 1 ? " and " : ", ";
    }
    return text;
}

std::string machine_identity() {
    const int cores = get_nprocs_conf();
    return processor_name() + ", " + std::to_string(cores) + (cores == 1 ? " core, " : " cores, ") +
           ports_in_words();
}

std::string calibration_path() {
    const auto value = [](const char *name) -> std::string {
        const char *const text = std::getenv(name);
        return text ? text : "";
    };
    std::string folder = value("XDG_CACHE_HOME");
    if (folder.empty() && !value("HOME").empty()) folder = value("HOME") + "/.cache";
    if (!folder.starts_with('/')) return {}; // XDG forbids relative paths
    char name[64];
    std::snprintf(name, sizeof name, "/qccl/calibration-%016llx",
                  static_cast<unsigned long long>(hash_text(machine_identity())));
    return folder + name;
}

} // namespace qccl
