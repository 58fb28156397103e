// Implements simulate_arguments.hpp: the options of qccl-perf simulate and the checks of their
// combinations.
#include "perf/simulate_arguments.hpp"

#include "base/choice.hpp"
#include "perf/benchmark.hpp"
#include "perf/call_options.hpp"
#include "perf/version_line.hpp"

#include <CLI/CLI.hpp>

namespace qccl::perf {

static constexpr const char *program = "qccl-perf simulate";

static Take take_simulated(Collective &collective) {
    return [&collective](const std::string &text) -> Done {
        const auto found = collective_called(text);
        if (!found)
            return no_choice("COLLECTIVE", text,
                             {"all_reduce", "reduce_scatter", "all_gather", "broadcast"});
        collective = *found;
        return {};
    };
}

static void add_calls(CLI::App &app, PerfArguments &to) {
    static constexpr auto *group = "Calls";
    add_option(app, group, "COLLECTIVE", "all_reduce, reduce_scatter, all_gather or broadcast",
               take_simulated(to.collective))
        ->required();
    add_option(app, group, "-o,--op", "sum, prod, min, max, avg or all (sum)", take_ops(to.ops));
    add_option(app, group, "-d,--datatype", "type of the values, or all (float)",
               take_types(to.types));
    add_option(app, group, "-r,--root", "root of broadcast, or all (0)",
               take_root(to.root, most_ranks_asked));
    add_option(app, group, "--codec", "codecs, separated by commas (none)", take_codecs(to.codecs));
    add_option(app, group, "--algo", "auto or algorithms, separated by commas (auto)",
               take_algorithms(to.algorithms));
    add_option(app, group, "--lossless", "0: no lossless calls to compare codecs with (1)",
               take_count(to.has_lossless_beside, 0, 1));
}

static void add_outputs(CLI::App &app, SimulateArguments &to) {
    static constexpr auto *group = "Results";
    add_option(app, group, "--json", "JSON with one row for each case; -: standard output",
               take_text(to.calls.json_file));
    add_option(app, group, "--perfetto", "one call as a trace for ui.perfetto.dev",
               take_text(to.perfetto_file));
    add_option(app, group, "--goal", "one call as GOAL text, for LogGOPSim and ATLAHS",
               take_text(to.goal_file));
}

static Done check_together(SimulateArguments &to, const MachineQuestion &machine) {
    PerfArguments &calls = to.calls;
    QCCL_TRY(to.machine, find_machine(machine));
    calls.ranks = to.machine.ranks;
    QCCL_TRY(check_sizes(calls));
    if (calls.root && *calls.root >= calls.ranks)
        return refuse("--root %u is none of the %u ranks", *calls.root, calls.ranks);
    if (!reduces(calls.collective)) calls.ops = {RedOp::sum};
    const uint64_t cases = sweep_points(calls) * calls.codecs.size() * calls.algorithms.size();
    for (const auto &[option, file] :
         {std::pair("--perfetto", &to.perfetto_file), std::pair("--goal", &to.goal_file)})
        if (!file->empty() && cases != 1)
            return refuse("%s writes one call, and these are %llu: give one size (-b and -e), one "
                          "codec and one algorithm",
                          option, static_cast<unsigned long long>(cases));
    return {};
}

std::variant<SimulateArguments, Answer> parse_simulate_arguments(std::vector<std::string> words) {
    SimulateArguments parsed;
    PerfArguments &calls = parsed.calls;
    MachineQuestion machine;
    CLI::App app("Prints how long calls would take, of ranks and on machines that need not be "
                 "there.",
                 program);
    app.set_version_flag("--version", version_line("qccl-perf"));
    add_machine_options(app, "Machine", machine);
    add_sizes(app, {calls.min_bytes, calls.max_bytes, calls.step_bytes, calls.step_factor});
    add_calls(app, calls);
    add_outputs(app, parsed);
    complete_names(app, words);
    if (auto answer = read_command_line(app, program, std::move(words))) return *answer;
    parsed.names_codecs = app.count("--codec") > 0;
    if (!machine.says_ranks()) machine.ranks = calls.ranks;
    if (const Done done = check_together(parsed, machine); !done)
        return refusal(program, done.error().text);
    return parsed;
}

} // namespace qccl::perf
