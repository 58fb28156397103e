// The commands of qccl-perf that its first argument selects, and the benchmark. Each command has a
// .cpp file of its own: simulate_command.cpp, codec_command.cpp, calibrate_command.cpp,
// demo_command.cpp. The main thread calls one of them, and it blocks until the command is done.
//
// simulate prints the table of a measurement for ranks and machines that need not exist; its
// arguments say which calls, on which machine, and where the results go. codec measures the speed
// of codecs on one core next to memcpy, or on a GPU next to a copy there. calibrate measures calls
// of a job and codecs on one core, and writes the file of figures that the planner then uses. demo
// sums real gradients of several ranks, lossless and compressed, and shows speed, bytes on the wire
// and error side by side; it starts its ranks itself and returns the exit status.
//
// The benchmark is perf_command.cpp, from the command line to the exit status. A Reporter writes
// the table, notes, progress and JSON of the running benchmark on rank 0; one thread at a time uses
// it. The notes about inputs and results that are not finite numbers explain why a row has no
// error; a note is an empty text if there is nothing to report. The demonstration uses the notes
// too.
#pragma once

#include "perf/cli/command_line.hpp"
#include "perf/cli/perf_arguments.hpp"
#include "perf/report/measurement.hpp"
#include "perf/report/report.hpp"
#include "perf/report/tool_files.hpp"
#include "perf/run/benchmark.hpp"
#include "perf/run/input_data.hpp"
#include "perf/run/rank_group.hpp"

#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

namespace qccl::perf {

// ---- qccl-perf simulate

struct SimulateArguments {
    PerfArguments calls; // sizes, types, codecs, algorithms, ranks
    Machine machine;
    bool names_codecs = false; // false: calls without a codec use that of the environment
    std::string perfetto_file, goal_file; // empty: none
};

// `words` are those after "simulate". Returns the arguments, or the text and exit status to end
// with.
std::variant<SimulateArguments, Answer> parse_simulate_arguments(std::vector<std::string> words);

// `words` are those after "simulate"; `command_line` is the whole command line, for the results.
// Blocks while it simulates. Returns the exit status.
int run_simulate_command(const std::vector<std::string> &words,
                         const std::vector<std::string> &command_line);

// ---- qccl-perf codec

// `arguments` are the words after "codec"; `command_line` is the program's whole command line, for
// the JSON output. Returns the exit status.
int run_codec_command(const std::vector<std::string> &arguments,
                      const std::vector<std::string> &command_line);

// ---- qccl-perf calibrate

// `arguments` are the words after "calibrate". Returns the exit status.
int run_calibrate_command(std::vector<std::string> arguments);

// ---- qccl-perf demo

int run_demo(const std::vector<std::string> &arguments);

// ---- Notes about values

// A note on the first `count` values of every rank's input. All ranks call this together and get
// the same note.
Result<std::string> non_finite_note(RankGroup &rank_group, const Source &source, DataType type,
                                    uint64_t count);

std::string overflow_note(const Row &row);

// ---- Reporting on rank 0

// The output files that the command line requests.
struct Outputs {
    std::optional<JsonFile> rows, nccl;

    static Result<Outputs> open(const PerfArguments &arguments);
    // Call when the run is over, whether it has succeeded or not.
    Done deliver() const;
};

class Reporter {
public:
    // Prints the header; `steps` is the number of points in a cycle.
    Reporter(const PerfArguments &arguments, const std::string &program, Outputs &outputs,
             RunInfo run, uint64_t steps);

    ProgressListener listener();
    void note(const std::string &sentence); // prints each sentence once
    // Prints the footer; fails if anything could not be written.
    Done finish();

    // Returns whether a result was wrong or the average is slower than the user allows.
    bool has_failed() const { return report_.rows_wrong() > 0 || report_.is_too_slow(); }

private:
    void take(const Row &row);
    void try_to(const Done &write);
    std::string nccl_tail_now() const;

    const PerfArguments &arguments_;
    Outputs &outputs_;
    ProgressLine progress_;
    std::FILE *out_;
    Report report_;
    std::set<std::string> notes_;
    Done trouble_; // the first error
};

// ---- The command

// `arguments` are the words after the collective's name; `command_line` is the whole command line,
// for the results. Returns the exit status.
int run_perf(const CallKind &kind, const std::string &program,
             const std::vector<std::string> &arguments,
             const std::vector<std::string> &command_line);

} // namespace qccl::perf
