#include "perf/simulate_arguments.hpp"

#include "base/choice.hpp"
#include "base/quantity.hpp"
#include "perf/benchmark.hpp"
#include "perf/call_options.hpp"
#include "perf/version_line.hpp"

#include <CLI/CLI.hpp>

namespace qccl::perf {

static constexpr const char *program = "qccl-perf simulate";

static Take take_collective(Collective &collective) {
    return [&collective](const std::string &text) -> Done {
        const auto found = collective_called(text);
        if (!found)
            return no_choice("COLLECTIVE", text,
                             {"all_reduce", "reduce_scatter", "all_gather", "broadcast"});
        collective = *found;
        return {};
    };
}

static void add_machine(CLI::App &app, SimulateArguments &to) {
    static constexpr auto *group = "Machine";
    add_option(app, group, "--ranks", "how many (2, or those of --hosts)",
               take_count(to.calls.ranks, 1, most_ranks_asked));
    add_option(app, group, "--hosts",
               "ranks of each host: 2,2,3, 64x8, 2,2,3:round or, with nodes and racks, 1+1,2/3",
               [&to](const std::string &text) -> Done {
                   QCCL_TRY(to.machine.places, parse_hosts(text));
                   return {};
               });
    add_option(app, group, "--rate", "of a host's line, as 10gbit or 12.5GB/s",
               [&to](const std::string &text) -> Done {
                   to.machine.bytes_per_second = parse_rate(text);
                   if (to.machine.bytes_per_second.value_or(0) == 0)
                       return refuse("'%.40s' is no rate above 0: expected one as 10gbit or "
                                     "12.5GB/s",
                                     text.c_str());
                   return {};
               });
    add_option(app, group, "--latency", "of a message between hosts, as 5us",
               [&to](const std::string &text) -> Done {
                   to.machine.latency = parse_duration(text);
                   if (!to.machine.latency)
                       return refuse("'%.40s' is no duration: expected one as 5us", text.c_str());
                   return {};
               });
    add_option(app, group, "--cores", "of each host, as 64 or 0.5 (as many as this machine has)",
               [&to](const std::string &text) -> Done {
                   const auto thousandths = parse_decimal(text, 3);
                   if (thousandths.value_or(0) == 0)
                       return refuse("'%.40s' is no number of cores above 0", text.c_str());
                   to.machine.cores = static_cast<double>(*thousandths) / 1000;
                   return {};
               });
}

static void add_calls(CLI::App &app, PerfArguments &to) {
    static constexpr auto *group = "Calls";
    add_option(app, group, "COLLECTIVE", "all_reduce, reduce_scatter, all_gather or broadcast",
               take_collective(to.collective))
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

static Done check_together(SimulateArguments &to, bool names_ranks) {
    PerfArguments &calls = to.calls;
    MachineQuestion &machine = to.machine;
    if (machine.places && names_ranks && machine.places->ranks() != calls.ranks)
        return refuse("--hosts has %u ranks, and --ranks says %u", machine.places->ranks(),
                      calls.ranks);
    if (machine.places) calls.ranks = machine.places->ranks();
    machine.ranks = calls.ranks;
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
    CLI::App app("Prints how long calls would take, of ranks and on machines that need not be "
                 "there.",
                 program);
    app.set_version_flag("--version", version_line("qccl-perf"));
    add_machine(app, parsed);
    add_sizes(app, {calls.min_bytes, calls.max_bytes, calls.step_bytes, calls.step_factor});
    add_calls(app, calls);
    add_outputs(app, parsed);
    complete_names(app, words);
    if (auto answer = read_command_line(app, program, std::move(words))) return *answer;
    if (const Done done = check_together(parsed, app.count("--ranks") > 0); !done)
        return refusal(program, done.error().text);
    return parsed;
}

} // namespace qccl::perf
