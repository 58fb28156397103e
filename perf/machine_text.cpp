// Texts about machines for people, and the check that ranks and rates are known.
#include "perf/machine_text.hpp"

#include <cstdio>
#include <set>
#include <span>

namespace qccl::perf {

static std::string counted(size_t number, const char *thing) {
    return std::to_string(number) + " " + thing + (number == 1 ? "" : "s");
}

// Counts the networks (racks) that contain the machines of these vertices.
static size_t racks_of(const Graph &graph, std::span<const uint32_t> vertices) {
    std::set<uint32_t> racks;
    for (const uint32_t vertex : vertices)
        racks.insert(graph.vertex(graph.machine_of(vertex)).parent);
    return racks.size();
}

std::string hosts_text(const Machine &machine) {
    const std::string text = counted(machine.hosts(), "host");
    const size_t there =
        machine.topology ? machine.topology->graph.of_kind(VertexKind::machine).size() : 0;
    if (there <= machine.hosts()) return text;
    const Graph &graph = machine.topology->graph;
    const bool is_in_one_rack = racks_of(graph, machine.topology->places) == 1 &&
                                racks_of(graph, graph.of_kind(VertexKind::machine)) > 1;
    return text + " of the topology's " + std::to_string(there) +
           (is_in_one_rack ? ", all in one rack" : "");
}

std::string racks_text(const Machine &machine) {
    const auto rate = machine.rack_bytes_per_ns();
    char text[64] = "";
    if (rate) std::snprintf(text, sizeof text, ", and %.4g GB/s for all of a rack", *rate);
    return text;
}

std::string describe(const Machine &machine) {
    std::string text = counted(machine.ranks, "rank") + " on " + hosts_text(machine);
    if (machine.hosts() < 2) return text;
    const auto rate = machine.far_bytes_per_ns();
    char between[80] = " with an unknown rate between them";
    if (rate) std::snprintf(between, sizeof between, " with %.4g GB/s between them", *rate);
    return text + between + racks_text(machine);
}

Result<Machine> known_machine(const MachineQuestion &question) {
    if (!question.says_ranks())
        return Error::make(Code::invalid_argument,
                           "on which machines? Say it as in --topology '4 x node(16 core) "
                           "net:10gbit', or as in --hosts 1,1,1,1 --rate 10gbit");
    QCCL_TRY(Machine machine, find_machine(question));
    if (machine.hosts() > 1 && !machine.far_bytes_per_ns())
        return Error::make(Code::invalid_argument,
                           "how fast the links between the hosts are is unknown, and with it "
                           "whether a codec pays: say it as in --rate 10gbit, or in the topology "
                           "as in net:10gbit");
    return machine;
}

} // namespace qccl::perf
