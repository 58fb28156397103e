// Implements explain_arguments.hpp: the options of qccl-info explain and the checks of their
// combinations.
#include "perf/explain_arguments.hpp"

#include "base/choice.hpp"
#include "coll/algorithm.hpp"
#include "perf/call_options.hpp"

#include <CLI/CLI.hpp>

namespace qccl::perf {

static Take take_type(PerfArguments &calls) {
    return [&calls](const std::string &text) -> Done {
        const auto type = parse_type(text);
        if (!type) return no_choice("type", text, names_of(type_table));
        calls.types = {*type};
        return {};
    };
}

static Take take_op(PerfArguments &calls) {
    return [&calls](const std::string &text) -> Done {
        const auto op = parse_op(text);
        if (!op) return no_choice("operation", text, {op_names.begin(), op_names.end()});
        calls.ops = {*op};
        return {};
    };
}

static void add_call(CLI::App &command, ExplainQuestion &question) {
    static constexpr auto *group = "Call";
    PerfArguments &calls = question.calls;
    add_option(command, group, "COLLECTIVE",
               listed({collective_names.begin(), collective_names.end()}),
               take_collective(calls.collective))
        ->required();
    add_option(command, group, "-d,--datatype,--type", "type of the values (float)",
               take_type(calls));
    add_option(command, group, "-o,--op", "operation (sum)", take_op(calls));
    add_option(command, group, "-r,--root", "of a broadcast (0)",
               take_root(calls.root, most_ranks_asked));
    add_option(command, group, "--codec", "codecs, separated by commas (as the settings say)",
               take_codecs(question.codecs));
    add_option(command, group, "--algo", listed(names_of(algorithm_table())),
               take_algorithm(question.algorithm));
}

CLI::App &add_explain_command(CLI::App &app, ExplainQuestion &question) {
    CLI::App &command =
        *app.add_subcommand("explain", "what the planner would do with calls, and why");
    PerfArguments &calls = question.calls;
    add_option(command, "Sizes", "--bytes", "one size, as 4096 or 64M",
               [&calls](const std::string &text) -> Done {
                   QCCL_TRY(take_bytes(calls.min_bytes)(text));
                   calls.max_bytes = calls.min_bytes;
                   return {};
               });
    add_sizes(command, {calls.min_bytes, calls.max_bytes, calls.step_bytes, calls.step_factor});
    for (const char *const range : {"--minbytes", "--maxbytes"})
        command.get_option("--bytes")->excludes(command.get_option(range));
    add_call(command, question);
    add_machine_options(command, "Machine", question.asked);
    add_option(command, "Results", "--json",
               "write JSON, one row for each size and codec; -: standard output, and no text",
               take_text(question.json_file));
    return command;
}

Done complete_question(ExplainQuestion &question) {
    PerfArguments &calls = question.calls;
    if (!question.asked.says_ranks())
        return refuse("--ranks, --hosts or --topology is required: how many ranks are there?");
    QCCL_TRY(question.machine, find_machine(question.asked));
    calls.ranks = question.machine.ranks;
    QCCL_TRY(check_sizes(calls));
    if (calls.collective == Collective::barrier) {
        calls.min_bytes = calls.max_bytes = 0;
        if (!question.codecs.empty()) return refuse("--codec: a barrier has no values to encode");
    }
    if (!calls.root) return refuse("--root all: name one root");
    if (*calls.root >= calls.ranks)
        return refuse("--root %u is none of the %u ranks", *calls.root, calls.ranks);
    const DataType type = calls.types ? calls.types->front() : DataType::float32;
    for (const Codec &codec : question.codecs)
        QCCL_TRY(check_codec(codec, calls.collective, type, calls.ops.front()));
    if (question.algorithm && !question.algorithm.has(calls.collective))
        return refuse("%s has no %s", spec(question.algorithm).c_str(), name(calls.collective));
    return {};
}

} // namespace qccl::perf
