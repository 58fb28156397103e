// Tests topology/sources/hwloc_source: it discovers the machine that the test runs on and machines
// that hwloc's variables name, and falls back to a plain machine if hwloc finds nothing.
#include "tests/kit/hwloc_files.hpp"
#include "tests/kit/qtest.hpp"

#include "topology/formats/read_topology.hpp"
#include "topology/machine_graph.hpp"
#include "topology/sources/machine_sources.hpp"

#include <cstdlib>
#include <fstream>

#include <unistd.h>

using namespace qccl;

namespace {

// Sets an environment variable for as long as the object lives.
class Variable {
public:
    Variable(const char *name, const std::string &value) : name_(name) {
        setenv(name, value.c_str(), 1);
    }
    ~Variable() { unsetenv(name_); }

private:
    const char *name_;
};

class HwlocFile {
public:
    explicit HwlocFile(const std::string &text) {
        close(mkstemp(path_));
        std::ofstream(path_) << text;
    }
    ~HwlocFile() { unlink(path_); }
    const char *path() const { return path_; }

private:
    char path_[32] = "/tmp/qccl_hwloc_XXXXXX";
};

void this_machine_has_the_processors_of_this_thread() {
    const DiscoveredMachine found = discover_machine(GpuLinks::asked_for);
    CHECK(check(found.graph, "hwloc"));
    CHECK(found.graph.vertex(0).kind == VertexKind::machine);
    CHECK(found.instead_of_hardware.empty());
    CpuSet all;
    for (const uint32_t numa : found.graph.of_kind(VertexKind::numa))
        for (uint32_t cpu = 0; cpu < CpuSet::most_cpus; cpu++)
            if (found.graph.vertex(numa).cpus.has(cpu)) all.add(cpu);
    CHECK(!allowed_cpus().is_empty() && all.contains(allowed_cpus()));
    CHECK(discover_machine(GpuLinks::asked_for).graph == found.graph);
}

void synthetic_machines_have_their_nodes() {
    const Variable synthetic("HWLOC_SYNTHETIC", "pack:2 group:2 [numa] pu:3");
    const DiscoveredMachine found = discover_machine(GpuLinks::asked_for);
    CHECK(found.warning.empty());
    CHECK(found.instead_of_hardware == "HWLOC_SYNTHETIC=pack:2 group:2 [numa] pu:3");
    CHECK(found.graph.of_kind(VertexKind::package).size() == 2);
    const auto nodes = found.graph.of_kind(VertexKind::numa);
    CHECK(nodes.size() == 4);
    CHECK(found.graph.vertex(nodes[3]).cpus == CpuSet::parse("e00"));
    CHECK(found.graph.vertex(nodes[3]).number == 3);
    CHECK(found.graph.vertex(found.graph.vertex(nodes[3]).parent).number == 1);
}

// hwloc's own reader and QCCL's reader give the same graph for a file.
void hwloc_reads_a_file_instead() {
    const HwlocFile file(hwloc_file());
    const Variable variable("HWLOC_XMLFILE", file.path());
    const DiscoveredMachine found = discover_machine(GpuLinks::asked_for);
    CHECK(found.warning.empty());
    CHECK(found.instead_of_hardware == std::string("HWLOC_XMLFILE=") + file.path());
    const auto parsed = parse_hwloc_xml(hwloc_file(), "m.xml");
    CHECK_OK(parsed);
    CHECK(with_network(found.graph) == *parsed);
}

void a_file_that_hwloc_cannot_read_leaves_a_plain_machine() {
    const HwlocFile file("<topology version=\"2.0\"><object type=\"Mach");
    const Variable variable("HWLOC_XMLFILE", file.path());
    const DiscoveredMachine found = discover_machine(GpuLinks::asked_for);
    CHECK(found.graph == plain_machine(allowed_cpus()));
    CHECK(found.warning == std::string("HWLOC_XMLFILE=") + file.path() + ": hwloc " +
                               hwloc_version() +
                               " cannot read it; this machine counts as one NUMA node with no GPU "
                               "and no NIC");
}

} // namespace

int main() {
    const CMUnitTest tests[] = {
        QTEST(this_machine_has_the_processors_of_this_thread),
        QTEST(synthetic_machines_have_their_nodes),
        QTEST(hwloc_reads_a_file_instead),
        QTEST(a_file_that_hwloc_cannot_read_leaves_a_plain_machine),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
