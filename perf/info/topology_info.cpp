// Implements qccl-info topology: reads or discovers the graph, orders the ranks, and writes the
// outputs.
#include "perf/info/info_commands.hpp"

#include "perf/report/tool_files.hpp"
#include "topology/formats/picture_svg.hpp"
#include "topology/formats/read_topology.hpp"
#include "topology/formats/topology_report.hpp"
#include "topology/graph_text.hpp"
#include "topology/sources/hwloc_source.hpp"
#include "topology/sources/network_source.hpp"

#include <algorithm>
#include <cstdio>

namespace qccl::perf {

// Discovers this machine with all interfaces that lead out of it, because there is no job that
// selects some of them.
static Result<Graph> this_machine() {
    const DiscoveredMachine machine = discover_machine(GpuLinks::asked_for);
    if (!machine.warning.empty()) std::fprintf(stderr, "qccl-info: %s\n", machine.warning.c_str());
    if (!machine.instead_of_hardware.empty())
        std::fprintf(stderr, "qccl-info: this is not the hardware, but what %s says\n",
                     machine.instead_of_hardware.c_str());
    const std::vector<NetworkPort> ports = list_ports();
    QCCL_TRY(const Settings settings, read_settings(environ));
    NetworkChoice choice = network_choice(settings);
    for (const NetworkPort &port : ports)
        if (port.is_up && !port.is_loopback && !port.is_internal)
            choice.interfaces.push_back(port.name);
    return connect_to_network(machine.graph, ports, choice);
}

static void print_rings(const RankOrder &order) {
    for (const RingLabel &ring : ring_labels(order)) std::printf("%s\n", ring.text.c_str());
}

Done print_topology(const TopologyQuestion &question) {
    const auto outputs = {&question.svg, &question.json, &question.text};
    const auto printed =
        std::ranges::count_if(outputs, [](const std::string *file) { return *file == "-"; });
    if (printed > 1)
        return Error::make(Code::invalid_argument, "only one of --svg, --json and --text can go to "
                                                   "standard output; name files for the others");
    QCCL_TRY(const Graph graph,
             question.topology.empty() ? this_machine() : read_topology(question.topology));
    QCCL_TRY(const std::vector<uint32_t> places, rank_places(graph, question.ranks));
    const bool needs_rings =
        !question.has_matrix || !question.svg.empty() || !question.json.empty();
    const RankOrder order = needs_rings ? order_ranks(graph, places) : RankOrder();
    if (printed == 0 && question.has_matrix) {
        std::fputs(print_matrix(graph).c_str(), stdout);
    } else if (printed == 0) {
        std::fputs(print_tree(graph).c_str(), stdout);
        print_rings(order);
    }
    if (!question.svg.empty())
        QCCL_TRY(write_file(question.svg, draw_picture(graph, places, order)));
    if (!question.json.empty())
        QCCL_TRY(write_file(question.json, print_graph_json(graph, places, order)));
    if (!question.text.empty()) QCCL_TRY(write_file(question.text, print_graph_text(graph)));
    return {};
}

} // namespace qccl::perf
