#include "perf/machine_text.hpp"

#include <cstdio>

namespace qccl::perf {

static std::string counted(size_t number, const char *thing) {
    return std::to_string(number) + " " + thing + (number == 1 ? "" : "s");
}

std::string hosts_text(const Machine &machine) {
    const std::string text = counted(machine.hosts(), "host");
    const size_t there =
        machine.topology ? machine.topology->graph.of_kind(VertexKind::machine).size() : 0;
    return there > machine.hosts() ? text + " of the topology's " + std::to_string(there) : text;
}

std::string describe(const Machine &machine) {
    std::string text = counted(machine.ranks, "rank") + " on " + hosts_text(machine);
    if (machine.hosts() < 2) return text;
    const auto rate = machine.far_bytes_per_ns();
    char between[80] = " with an unknown rate between them";
    if (rate) std::snprintf(between, sizeof between, " with %.4g GB/s between them", *rate);
    return text + between;
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
