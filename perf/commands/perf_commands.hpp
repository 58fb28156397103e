// The commands of qccl-perf that its first argument selects; the benchmark is in perf_command.hpp.
// Each command has a .cpp file of its own: simulate_command.cpp, codec_command.cpp,
// calibrate_command.cpp, demo_command.cpp. The main thread calls one of them, and it blocks until
// the command is done.
//
// simulate prints the table of a measurement for ranks and machines that need not exist; its
// arguments say which calls, on which machine, and where the results go. codec measures the speed
// of codecs on one core next to memcpy, or on a GPU next to a copy there. calibrate measures calls
// of a job and codecs on one core, and writes the file of figures that the planner then uses. demo
// sums real gradients of several ranks, lossless and compressed, and shows speed, bytes on the wire
// and error side by side; it starts its ranks itself and returns the exit status.
#pragma once

#include "perf/cli/machine_options.hpp"
#include "perf/cli/perf_arguments.hpp"

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

} // namespace qccl::perf
