// Most commands of qccl-info, each as a request with its options and the function that prints the
// answer. The other commands are in attach.hpp (running jobs) and recorded_job.hpp (recorded jobs).
// Used by qccl_info.cpp. The main thread calls one of them, and it blocks while it reads and
// computes.
//
// The first functions print what this library is and finds on this machine. topology shows the
// parts and links of this machine or of another one, and the rings through its ranks, as a tree, a
// matrix, a picture, JSON or text. schedule and verify print a rank's schedule and prove the
// schedules of all ranks. explain shows as text and as JSON what the planner would do with calls
// and why, on a machine that need not exist; of values in files it predicts the error from a
// sample. plan decides for each tensor of a job whether it is compressed and how it is cut, and
// writes a plan file for QCCL_PLAN_FILE. advise says for given data and a network which codec to
// use, its error and the time it saves, for one error budget or for a ladder of budgets. adapt
// chooses a codec for each layer of given gradients. trace merges the QCCL_TRACE files of all ranks
// into one for Perfetto or chrome://tracing.
#pragma once

#include "base/result.hpp"
#include "base/types.hpp"
#include "codec/codec.hpp"
#include "coll/algorithm.hpp"
#include "perf/cli/command_line.hpp"
#include "perf/cli/perf_arguments.hpp"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace qccl::perf {

// ---- This machine: machine_info.cpp

void print_version();
void print_devices();
void print_transports();
void print_tools();
// Prints as JSON the description of a run that qccl-perf's files begin with.
void print_run(const std::vector<std::string> &command_line);
Done print_codecs();
// Fails if the library refuses the value of a QCCL_* variable.
Done print_settings();
Done print_everything();

// ---- topology: machine_info.cpp

struct TopologyRequest {
    std::string topology; // a file or a description; empty: this machine
    uint32_t ranks = 0;   // 0: one for each GPU, or one for each NUMA node if there are no GPUs
    bool has_matrix = false;
    std::string svg, json, text; // files to write; empty: none; "-": standard output
};

// Prints the tree or the matrix, unless a file goes to standard output. Fails if the topology
// cannot be read or has too few places for the ranks, or if a file cannot be written.
Done print_topology(const TopologyRequest &request);

// ---- schedule and verify: schedule_info.cpp

struct ScheduleRequest {
    Collective collective = Collective::all_reduce;
    Algorithm algorithm;
    uint32_t ranks = 0; // 0: the number of sections in the file
    uint32_t rank = 0;
    uint32_t root = 0;
    std::optional<Codec> codec;         // nothing: the schedule without a codec
    bool has_synchronous_sends = false; // verify: a send completes only when its receive is posted
    std::string file;                   // "-": standard input; empty: the algorithm's own schedules
    // Where the ranks are; null: all are on one host.
    std::shared_ptr<const RankTopology> places = nullptr;

    Team team(uint32_t of) const {
        return {.size = ranks, .rank = of, .root = root, .places = places.get()};
    }
};

// Checks that the options fit together. The functions below require this.
Done check_request(const ScheduleRequest &request);

Done print_schedule(const ScheduleRequest &request);
// The error names the first wrong step.
Done print_proof(const ScheduleRequest &request);

// ---- explain: planning_info.cpp

struct ExplainRequest {
    PerfArguments calls; // collective, sizes, operation, type, root; one value each, except sizes
    std::vector<Codec> codecs; // empty: as the settings say
    Algorithm algorithm;       // none: the planner chooses
    std::string input;         // "DIR/rank%r.npy", the values of the sum; empty: they are not known
    MachineRequest asked;
    Machine machine; // the machine that `asked` describes; set by complete_request
    std::string json_file;
    std::vector<std::string> command_line;
};

// Adds the subcommand. Its options write into `request`, which must outlive the parsing of the
// command line.
CLI::App &add_explain_command(CLI::App &app, ExplainRequest &request);

// Call after the command line has been parsed: finds the machine and checks the options. The error
// names the options that do not fit together.
Done complete_request(ExplainRequest &request);

// `request` must be complete (see complete_request). Fails if a file cannot be written, a plan
// file belongs to another job, or no algorithm can perform a call.
Done print_explanations(const ExplainRequest &request);

// ---- plan: planning_info.cpp

struct TensorPlanRequest {
    std::string gradients; // a list of tensors, see read_tensors
    std::string out;       // file for the plan; empty: standard output
    std::optional<Codec> codec = {};
    Algorithm algorithm = {}; // none: the planner chooses
    MachineRequest machine = {};
};

void add_tensor_plan_options(CLI::App &app, const char *group, TensorPlanRequest &request);

// Writes the plan file. Also prints its content as a table unless the plan goes to standard output.
// The error names what cannot be read, planned or written.
Done print_tensor_plan(const TensorPlanRequest &request);

// ---- advise: planning_info.cpp

struct AdviceRequest {
    std::string input;               // "DIR/rank%r.npy"
    std::optional<double> nmse = {}; // the error budget; nothing: a ladder of budgets
    std::string json;                // file to write; empty: none; "-": standard output
    MachineRequest machine = {};
};

void add_advice_options(CLI::App &app, const char *group, AdviceRequest &request);

// Prints a table and a sentence, unless JSON goes to standard output. Fails with a text that names
// what cannot be read or answered.
Done print_advice(const AdviceRequest &request);

// ---- adapt: layer_choice.cpp

struct LayerChoiceRequest {
    std::string input;                    // "DIR/rank%r.npy"
    std::string layers;                   // a list of tensors, see read_tensors
    Codec uniform = *parse_codec("int4"); // its error is the budget
    std::vector<Codec> candidates = {};   // empty: usual_layer_codecs()
    std::string svg = {}, json = {};      // files to write; empty: none; "-": standard output
};

void add_layer_choice_options(CLI::App &app, const char *group, LayerChoiceRequest &request);

// Prints a table with the codec of each layer, unless a file goes to standard output. Fails with a
// text that names what cannot be read or chosen from.
Done print_layer_choice(const LayerChoiceRequest &request);

// ---- trace: trace_merge.cpp

// Writes the events of all files to `output`, which is replaced and must not be one of the files.
// All times get one origin, and the clocks of the hosts are aligned. Files of killed ranks are read
// up to their last complete event. The error names the file and what is wrong.
Done merge_traces(const std::vector<std::string> &files, const std::string &output);

} // namespace qccl::perf
