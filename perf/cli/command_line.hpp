// Reads the command lines of all tools: accepts or refuses values with a message, suggests the
// meant option for a misspelt one, prints help in one style, and gives the version text that the
// tools print. Starts nothing, and prints nothing except by tell(). Any thread; nothing blocks.
//
// MachineOptions describe the machine that the user asks a tool about, which need not be this one:
// which ranks are on which hosts, and how fast the links are, as the planner and the simulator need
// it. Used by qccl-info and qccl-perf. Reads settings (QCCL_LINK_RATE and others) and topology
// files. Any thread.
#pragma once

#include "base/result.hpp"
#include "base/settings.hpp"
#include "plan/calibration.hpp"
#include "plan/planner.hpp"
#include "topology/job_graph.hpp"

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <qccl/version.h>

namespace qccl::perf {

inline std::string version_text() {
    return std::to_string(QCCL_VERSION_MAJOR) + "." + std::to_string(QCCL_VERSION_MINOR) + "." +
           std::to_string(QCCL_VERSION_PATCH);
}
inline std::string version_line(const std::string &program) {
    return program + " " + version_text();
}

} // namespace qccl::perf

namespace CLI {

class App;
class Option;

} // namespace CLI

namespace qccl::perf {

// Exit status if the request is invalid or impossible.
inline constexpr int usage_error = 2;

// What a program prints before it exits because its command line leaves nothing else to do: help,
// or the reason for a refusal.
struct Answer {
    int status;
    std::string text;
};

Answer refusal(const std::string &program, const std::string &sentence);
// Prints the answer and returns its exit status.
int tell(const Answer &answer);

[[gnu::format(printf, 1, 2)]] Error refuse(const char *format, ...);

using Take = std::function<Done(const std::string &text)>;
CLI::Option *add_option(CLI::App &app, const char *group, const std::string &flags,
                        const std::string &help, const Take &take);

Done read_count(const std::string &text, uint64_t least, uint64_t most, uint64_t &value);
template <class T> Take take_count(T &value, uint64_t least, uint64_t most) {
    return [&value, least, most](const std::string &text) -> Done {
        uint64_t number = 0;
        QCCL_TRY(read_count(text, least, most, number));
        value = static_cast<T>(number);
        return {};
    };
}
Take take_bytes(uint64_t &value);
Take take_text(std::string &value); // any text except an empty one

// Completes abbreviated long names of options that also have a letter, if only one such name begins
// so. nccl-tests reads its options by getopt_long, which accepts abbreviations.
void complete_names(const CLI::App &app, std::vector<std::string> &words);

// `words` are those after the program's name. Returns nothing if the program goes on.
std::optional<Answer> read_command_line(CLI::App &app, const std::string &program,
                                        std::vector<std::string> words);

// A job has at most this many ranks, see bootstrap/. The limit also keeps a typing error from using
// up all memory.
inline constexpr uint32_t most_ranks_asked = 65536;

// The options as the user gives them.
struct MachineRequest {
    std::string topology = {}; // a file or a description; empty: `places` says where the ranks are
    uint32_t ranks = 0;        // 0: those of `places`, or one for each GPU or NUMA node
    std::shared_ptr<const RankTopology> places = nullptr; // null: all are on one host
    // Rate of a host's link; nothing: as the settings or the topology say, or the planner's
    // default.
    std::optional<uint64_t> bytes_per_second = {};
    std::optional<std::chrono::nanoseconds> latency = {};
    // Cores of each host; nothing: as many as in the topology or on this machine.
    std::optional<double> cores = {};
    bool hosts_share_cores = false; // `cores` counts the cores of all hosts together

    bool says_ranks() const { return ranks != 0 || places || !topology.empty(); }
};

// Adds --topology, --ranks, --hosts, --rate, --latency and --cores.
void add_machine_options(CLI::App &app, const char *group, MachineRequest &to);

// Parses a list of hosts. "2,2,3": hosts with that many ranks, in rank order. "2,2,3:round" deals
// the ranks out to the hosts in turn. "1+2,2/4": the first host has two nodes, the last host is in
// another rack. "64x8": 64 hosts of 8 ranks. The error says what is expected.
Result<std::shared_ptr<const RankTopology>> parse_hosts(const std::string &text);

// The machine as far as it is known.
struct Machine {
    uint32_t ranks = 0;
    std::shared_ptr<const RankTopology> places = nullptr;  // null: all ranks are on one node
    std::shared_ptr<const JobTopology> topology = nullptr; // null: only hosts are known
    std::optional<RemoteLink> remote = {};                 // nothing: all ranks are on one host
    std::optional<LocalLink> local = {};                   // nothing: no topology describes it
    bool has_gpus = false;                                 // each rank has its own GPU
    std::optional<double> cores = {}; // of the smallest host; nothing: each rank has its own core
    bool hosts_share_cores = false;   // `cores` counts the cores of all hosts together
    double ranks_per_core = 1;        // on the host where it is highest
    // Calibration of this machine; null if there is none or a topology describes another machine.
    std::shared_ptr<const Measured> measured = nullptr;
    std::shared_ptr<const Corrections> simulated = nullptr; // for the simulator; null: none
    Settings settings = {}; // of this process, with the question's rate and latency
    uint32_t tiers = ~0U;   // that the settings allow, as a mask for best_kernels

    size_t hosts() const { return places ? places->hosts().groups() : 1; }
    // Returns how many ranks share cores, caches and memory, on the host that has the most ranks.
    size_t ranks_together() const {
        return !places || hosts_share_cores ? ranks : places->hosts().most_ranks();
    }
    // Returns the rate between hosts, each way. Nothing if neither settings nor topology nor a
    // calibration gives it; the planner then uses a placeholder rate, which suffices to compare
    // algorithms but not to predict times.
    std::optional<double> remote_bytes_per_ns() const;
    bool has_measured_rate() const; // the rate is measured, not stated
    // Returns the rate of the slowest rack's link to the other racks, each way. Nothing if all
    // ranks are in one rack or the rate is unknown.
    std::optional<double> rack_bytes_per_ns() const;
};

JobShape shape_of(const Machine &machine);

// Refuses, with a sentence: a topology that cannot be read, has too few places for the ranks or is
// given together with --hosts; contradictory numbers of ranks; invalid settings. Warns on standard
// error if a calibration is ignored.
Result<Machine> find_machine(const MachineRequest &request);
// Returns the planner's inputs for a communicator on the machine. `pieces` says how a call is cut
// if the settings do not.
PlannerInputs inputs_of(const Machine &machine, const Pieces &pieces = {});

} // namespace qccl::perf
