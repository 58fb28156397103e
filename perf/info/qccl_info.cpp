// The program qccl-info: reports what the library is, what it finds on this machine, and what it
// would do. This file defines the command line and selects the command; the commands are in files
// of their own.
#include "perf/cli/command_line.hpp"
#include "perf/cli/perf_arguments.hpp"
#include "perf/info/attach.hpp"
#include "perf/info/info_commands.hpp"
#include "perf/info/recorded_job.hpp"
#include "perf/report/tool_files.hpp"

#include "base/text.hpp"
#include "coll/algorithm.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <new>
#include <tuple>

#include <CLI/CLI.hpp>

using namespace qccl;
using namespace qccl::perf;

// The work that remains after the command line has been read.
using Task = std::function<Done()>;

static void add_topic(CLI::App &app, const char *name, const char *help, Task &task,
                      const Task &print) {
    app.add_subcommand(name, help)->callback([&task, print] { task = print; });
}

// For topics that cannot fail.
static Task always(const std::function<void()> &print) {
    return [print]() -> Done {
        print();
        return {};
    };
}

static constexpr auto *options = "Options";

static Take take_hosts(std::shared_ptr<const RankTopology> &places) {
    return [&places](const std::string &text) -> Done {
        QCCL_TRY(places, parse_hosts(text));
        return {};
    };
}

static Take take_codec(std::optional<Codec> &codec) {
    return [&codec](const std::string &text) -> Done {
        QCCL_TRY(codec, parse_codec(text));
        return {};
    };
}

static CLI::App &add_question(CLI::App &app, const char *name, const char *help,
                              ScheduleRequest &request, Task &task,
                              Done (*answer)(const ScheduleRequest &)) {
    CLI::App &command = *app.add_subcommand(name, help);
    add_option(command, options, "COLLECTIVE",
               listed({collective_names.begin(), collective_names.end()}),
               take_collective(request.collective))
        ->required();
    add_option(command, options, "--algo", listed(names_of(algorithm_table())),
               take_algorithm(request.algorithm));
    add_option(command, options, "--ranks", "how many",
               take_count(request.ranks, 1, most_ranks_asked));
    add_option(command, options, "--hosts",
               "how many ranks each host has: 2,2,3, 2,2,3:round or, with nodes and racks, 1+1,2/3",
               take_hosts(request.places));
    add_option(command, options, "--root", "of a collective that has one (0)",
               take_count(request.root, 0, most_ranks_asked - 1));
    add_option(command, options, "--codec", "codec; without, none is placed",
               take_codec(request.codec));
    command.callback(
        [&task, &request, answer] { task = [&request, answer] { return answer(request); }; });
    return command;
}

// The schedules of all ranks may need more memory than is available.
static Done answer(const Task &task) {
    try {
        return task();
    } catch (const std::bad_alloc &) {
        return Error::make(Code::system_error, "out of memory: fewer ranks need less");
    }
}

static void add_schedule_requests(CLI::App &app, ScheduleRequest &request, Task &task) {
    CLI::App &shown =
        add_question(app, "schedule", "one rank's schedule as text", request, task, print_schedule);
    add_option(shown, options, "--rank", "whose (0)",
               take_count(request.rank, 0, most_ranks_asked - 1));
    CLI::App &proven = add_question(app, "verify", "prove the schedules of all ranks together",
                                    request, task, print_proof);
    add_option(proven, options, "--file",
               "texts to prove, one section for each rank; -: standard input",
               take_text(request.file));
    proven
        .add_flag("--synchronous", request.has_synchronous_sends,
                  "also where a send is done only when its receive is posted")
        ->group(options);
    for (CLI::App *const command : {&shown, &proven}) command->get_option("--algo")->required();
    shown.get_option("--ranks")->required();
}

static void add_explain(CLI::App &app, ExplainRequest &request, Task &task) {
    add_explain_command(app, request).callback([&task, &request] {
        task = [&request] { return print_explanations(request); };
    });
}

static void add_attach(CLI::App &app, AttachRequest &request, Task &task) {
    CLI::App &command = *app.add_subcommand("attach", "what the ranks of a running job wait for");
    add_option(command, options, "PID|FOLDER", "a process of the job, or a folder (QCCL_RECORD)",
               take_text(request.place))
        ->required();
    add_option(command, options, "--calls", "list so many of each rank's last calls (0)",
               take_count(request.last_calls, 0, UINT32_MAX));
    command.callback([&task, &request] { task = [&request] { return print_attached(request); }; });
}

struct TraceRequest {
    std::vector<std::string> files;
    std::string output = "trace.json";
};

static void add_traces(CLI::App &app, std::vector<std::string> &logs, TraceRequest &traces,
                       Task &task) {
    CLI::App &calls =
        *app.add_subcommand("calls", "calls, time and skew of a job that recorded its calls");
    calls.add_option("FILE", logs, "files of QCCL_RECORD_CALLS, one for each rank")
        ->required()
        ->group(options);
    calls.callback([&task, &logs] { task = [&logs] { return print_calls(logs); }; });
    CLI::App &trace = *app.add_subcommand("trace", "the traces of a job's ranks as one");
    trace.add_option("FILE", traces.files, "files of QCCL_TRACE, one for each rank")
        ->required()
        ->group(options);
    add_option(trace, options, "--output", "where to write (trace.json)", take_text(traces.output));
    trace.callback([&task, &traces] {
        task = [&traces] { return merge_traces(traces.files, traces.output); };
    });
}

static void add_whatif(CLI::App &app, WhatIfRequest &request,
                       const std::vector<std::string> &command_line, Task &task) {
    CLI::App &command = *app.add_subcommand(
        "whatif", "how long a recorded job would take on another machine or with another codec");
    command.add_option("FILE", request.logs, "files of QCCL_RECORD_CALLS, one for each rank")
        ->required()
        ->group(options);
    add_machine_options(command, options, request.machine);
    add_option(command, options, "--codec", "of all calls that can have it (as settings say)",
               take_codec(request.codec));
    add_option(command, options, "--algo", "of all calls that can have it (the planner's choice)",
               take_algorithm(request.algorithm));
    add_option(command, options, "--out",
               "write a plan for QCCL_PLAN_FILE to this file; -: "
               "standard output",
               take_text(request.plan_file));
    add_option(command, options, "--json", "write JSON to this file; -: standard output",
               take_text(request.json_file));
    command.callback([&task, &request, &command_line] {
        task = [&request, &command_line] { return print_whatif(request, command_line); };
    });
}

static void add_topology(CLI::App &app, TopologyRequest &request, Task &task) {
    CLI::App &command =
        *app.add_subcommand("topology", "parts, links and rings of this machine or another one");
    add_option(command, options, "--topology",
               "a file of hwloc, NCCL, RCCL or --text, or a text such as '4 x node(8 gpu) net:50'",
               take_text(request.topology));
    add_option(command, options, "--ranks", "how many (one for each GPU or NUMA node)",
               take_count(request.ranks, 1, most_ranks_asked));
    command.add_flag("--matrix", request.has_matrix, "paths between GPUs, NICs and NUMA nodes")
        ->group(options);
    for (const auto &[flag, help, path] :
         {std::tuple("--svg", "write a picture to this file; -: standard output", &request.svg),
          std::tuple("--json", "write JSON to this file", &request.json),
          std::tuple("--text", "write a text that --topology reads to this file", &request.text)})
        add_option(command, options, flag, help, take_text(*path));
    command.callback([&task, &request] { task = [&request] { return print_topology(request); }; });
}

static void add_advice(CLI::App &app, AdviceRequest &advice, TensorPlanRequest &plan, Task &task) {
    CLI::App &advised =
        *app.add_subcommand("advise", "which codec for data at hand, with what error and gain");
    add_advice_options(advised, options, advice);
    advised.callback([&task, &advice] { task = [&advice] { return print_advice(advice); }; });
    CLI::App &planned = *app.add_subcommand(
        "plan", "a plan file: which tensors are compressed, and into how many parts they are cut");
    add_tensor_plan_options(planned, options, plan);
    planned.callback([&task, &plan] { task = [&plan] { return print_tensor_plan(plan); }; });
}

static void add_layer_choice(CLI::App &app, LayerChoiceRequest &request, Task &task) {
    CLI::App &command = *app.add_subcommand(
        "adapt", "a codec for each layer of gradients: fewer bits at the error of one codec");
    add_layer_choice_options(command, options, request);
    command.callback(
        [&task, &request] { task = [&request] { return print_layer_choice(request); }; });
}

// The arguments of each command.
struct Requests {
    AttachRequest attached;
    std::vector<std::string> logs;
    TraceRequest traces;
    WhatIfRequest whatif;
    TopologyRequest topology;
    ExplainRequest explained;
    AdviceRequest advice;
    TensorPlanRequest plan;
    LayerChoiceRequest layers;
    ScheduleRequest schedule;
};

static void add_commands(CLI::App &app, Requests &to, const std::vector<std::string> &command_line,
                         Task &task) {
    add_topic(app, "version", "the library's version", task, always(print_version));
    add_topic(app, "devices", "what can compute", task, always(print_devices));
    add_topic(app, "transports", "what can carry", task, always(print_transports));
    add_topic(app, "codecs", "what can compress", task, print_codecs);
    add_topic(app, "tools", "what the functions pqccl... are for", task, always(print_tools));
    add_topic(app, "settings", "every setting, its value and who set it", task, print_settings);
    add_attach(app, to.attached, task);
    add_traces(app, to.logs, to.traces, task);
    add_whatif(app, to.whatif, command_line, task);
    add_topology(app, to.topology, task);
    to.explained.command_line = command_line;
    add_explain(app, to.explained, task);
    add_advice(app, to.advice, to.plan, task);
    add_layer_choice(app, to.layers, task);
    add_schedule_requests(app, to.schedule, task);
    // Lets run() see --json after a topic and refuse it there as it does before a topic.
    for (CLI::App *const command : app.get_subcommands(nullptr)) command->fallthrough();
}

static int run(const std::vector<std::string> &command_line) {
    const std::vector<std::string> words(command_line.begin() + !command_line.empty(),
                                         command_line.end());
    static constexpr auto *program = "qccl-info";
    CLI::App app("Says what QCCL is, has and would do on this machine.", program);
    app.set_version_flag("--version", version_line(program));
    app.require_subcommand(0, 1);
    Task task = print_everything;
    CLI::Option *const json =
        app.add_flag_callback(
               "--json", [&] { task = always([&command_line] { print_run(command_line); }); },
               "alone: version, command line, host, date and settings, as JSON")
            ->group(options);
    Requests questions;
    add_commands(app, questions, command_line, task);
    if (const auto answer = read_command_line(app, program, words)) return tell(*answer);
    if (*json && !app.get_subcommands().empty()) {
        const std::string topic = app.get_subcommands().front()->get_name();
        return tell(
            refusal(program, "--json describes the run and takes no topic; " + topic +
                                 (topic == "topology" || topic == "explain" || topic == "advise" ||
                                          topic == "whatif" || topic == "adapt"
                                      ? " takes its own --json FILE behind it"
                                      : " prints text only")));
    }
    const bool asks = app.got_subcommand("schedule") || app.got_subcommand("verify");
    if (const Done sound = asks                            ? check_request(questions.schedule)
                           : app.got_subcommand("explain") ? complete_request(questions.explained)
                                                           : Done{};
        !sound)
        return tell(refusal(program, sound.error().text));
    const Done done = answer(task);
    if (done) return EXIT_SUCCESS;
    std::fflush(stdout);
    std::fprintf(stderr, "%s: %s\n", program, done.error().text);
    // A machine that cannot be, and data that no sum can have, are as wrong as an option.
    const auto asks_of_a_machine = {"topology", "explain", "advise", "plan", "whatif", "adapt"};
    const bool is_refused = done.error().code == Code::invalid_argument &&
                            std::ranges::any_of(asks_of_a_machine, [&](const char *topic) {
                                return app.got_subcommand(topic);
                            });
    return is_refused ? usage_error : EXIT_FAILURE;
}

int main(int argc, char **argv) {
    // The buffer holds everything that is printed, so that a write error and its reason show up at
    // the end.
    static char room[64 << 10];
    std::setvbuf(stdout, room, _IOFBF, sizeof room);
    return end_output("qccl-info", run({argv, argv + argc}));
}
