// The machine that a tool is asked about, which need not be this one: which ranks on which hosts,
// and how fast its links are, as the planner and the simulator see it. Reads the settings
// (QCCL_LINK_RATE and its like) and topology files; any thread.
#pragma once

#include "base/result.hpp"
#include "base/settings.hpp"
#include "perf/command_line.hpp"
#include "plan/calibration.hpp"
#include "plan/planner.hpp"
#include "topology/job_links.hpp"

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

namespace qccl::perf {

// A job has no more, see bootstrap/; and a typing error should not cost all memory.
inline constexpr uint32_t most_ranks_asked = 65536;

// As the command line has it.
struct MachineQuestion {
    std::string topology = {}; // a file or a description; empty: `places` say where the ranks are
    uint32_t ranks = 0;        // 0: those of `places`, or one for each GPU or NUMA node
    std::shared_ptr<const Places> places = nullptr; // null: all are on one host
    // Of a host's line; nothing: as the settings or the topology say, or the planner's defaults.
    std::optional<uint64_t> bytes_per_second = {};
    std::optional<std::chrono::nanoseconds> latency = {};
    // Of each host; nothing: as many as the topology says, or as this machine has.
    std::optional<double> cores = {};
    bool hosts_share_cores = false; // they are all that there are

    bool says_ranks() const { return ranks != 0 || places || !topology.empty(); }
};

// Adds --topology, --ranks, --hosts, --rate, --latency and --cores.
void add_machine_options(CLI::App &app, const char *group, MachineQuestion &to);

// "2,2,3": a host of so many ranks after the other. "2,2,3:round" deals the ranks out to the hosts
// in turn. "1+2,2/4": the first host has two nodes, the last one is in another rack.
// "64x8": 64 hosts of 8 ranks. An error says what is expected.
Result<std::shared_ptr<const Places>> parse_hosts(const std::string &text);

// What is known of it.
struct Machine {
    uint32_t ranks = 0;
    std::shared_ptr<const Places> places = nullptr;        // null: all ranks are in one place
    std::shared_ptr<const JobTopology> topology = nullptr; // null: the hosts are all that is known
    std::optional<FarLink> far = {};                       // nothing: all ranks are on one host
    std::optional<NearLink> near = {};                     // nothing: no topology says it
    bool has_gpus = false;                                 // each rank is on one of its own
    std::optional<double> cores = {}; // of the smallest host; nothing: each rank has its own
    bool hosts_share_cores = false;   // those are all that there are
    double ranks_per_core = 1;        // of the host where they are most
    // On this machine, unless a topology describes another one; null: nothing.
    std::shared_ptr<const Measured> measured = nullptr;
    std::shared_ptr<const Corrections> simulated = nullptr; // of the simulator; null: nothing
    Settings settings = {}; // of this process, and the question's own rate and latency

    size_t hosts() const { return places ? places->hosts().groups() : 1; }
    // That share cores, caches and memory: of the host that has most.
    size_t ranks_together() const {
        return !places || hosts_share_cores ? ranks : places->hosts().most_ranks();
    }
    // Between hosts, each way. Nothing where neither settings nor topology nor a calibration say
    // it: the planner's tables hold a stand-in then, by which algorithms can be compared and
    // nothing be promised.
    std::optional<double> far_bytes_per_ns() const;
    bool has_measured_rate() const; // rather than one that is stated
    // Of a rack's line to the others, each way: the slowest. Nothing where ranks are in one rack,
    // or nothing says it.
    std::optional<double> rack_bytes_per_ns() const;
};

JobShape shape_of(const Machine &machine);

// Refuses with a sentence: a topology that cannot be read, has no room for the ranks or stands
// beside --hosts, numbers of ranks that differ, and settings that cannot be. Says on standard error
// where a calibration is left alone.
Result<Machine> find_machine(const MachineQuestion &question);
// The planner's tables of a communicator there. `pieces`: into which a call is cut, if the settings
// do not say it.
Tables tables_of(const Machine &machine, const Pieces &pieces = {});

} // namespace qccl::perf
