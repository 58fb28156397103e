// The program qccl-perf: measures collectives and codecs, checks results, and shows the effect of
// compression. This file selects the command by the first argument or by the program's name.
#include "base/text.hpp"
#include "perf/cli/command_line.hpp"
#include "perf/commands/perf_commands.hpp"
#include "perf/report/tool_files.hpp"

#include <cstdio>
#include <cstdlib>

static constexpr const char *usage =
    "Usage: qccl-perf COLLECTIVE [options]   measure a collective (options: COLLECTIVE --help)\n"
    "       qccl-perf simulate COLLECTIVE    how long it would take on another machine\n"
    "       qccl-perf codec [options]        measure codecs on one core\n"
    "       qccl-perf calibrate [options]    measure this machine for the planner\n"
    "       qccl-perf demo [options]         sum real gradients over four processes\n"
    "COLLECTIVE is %s;\n"
    "underscores may be left out, and a _perf of nccl-tests may follow. The manual: man "
    "qccl-perf.\n";

static int run(int argc, char **argv) {
    using namespace qccl::perf;
    const std::vector<std::string> command_line(argv, argv + argc);
    const std::string called = command_line.empty() ? "qccl-perf" : command_line[0];
    const std::string program = called.substr(called.rfind('/') + 1);
    const auto from = [&](int first) {
        return std::vector<std::string>(command_line.begin() + std::min(first, argc),
                                        command_line.end());
    };
    if (const auto kind = kind_called(program))
        return run_perf(*kind, program, from(1), command_line);

    const std::string what = argc > 1 ? command_line[1] : "";
    if (const auto kind = kind_called(what))
        return run_perf(*kind, std::string(name(*kind)) + "_perf", from(2), command_line);
    if (what == "simulate") return run_simulate_command(from(2), command_line);
    if (what == "codec") return run_codec_command(from(2), command_line);
    if (what == "calibrate") return run_calibrate_command(from(2));
    if (what == "demo") return run_demo(from(2));
    if (what == "--version") {
        std::printf("%s\n", version_line("qccl-perf").c_str());
        return EXIT_SUCCESS;
    }
    const bool asks = what == "-h" || what == "--help";
    qccl::Names possible = kind_names();
    possible.insert(possible.end(), {"simulate", "codec", "calibrate", "demo"});
    if (!asks && !what.empty())
        std::fprintf(stderr, "qccl-perf: %s\n",
                     qccl::no_choice("the first argument", what, possible).text);
    std::fprintf(asks ? stdout : stderr, usage, qccl::listed(kind_names()).c_str());
    return asks ? EXIT_SUCCESS : usage_error;
}

int main(int argc, char **argv) { return qccl::perf::end_output("qccl-perf", run(argc, argv)); }
