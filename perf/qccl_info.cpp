// qccl-info: what the library is, has and would do on this machine.
#include "perf/machine_info.hpp"
#include "perf/perf_arguments.hpp"
#include "perf/schedule_info.hpp"
#include "perf/standard_output.hpp"
#include "perf/version_line.hpp"

#include "base/choice.hpp"
#include "base/quantity.hpp"

#include <cstdio>
#include <cstdlib>
#include <functional>
#include <new>

#include <CLI/CLI.hpp>

using namespace qccl;
using namespace qccl::perf;

// What remains to be done when the command line has been read.
using Task = std::function<Done()>;

static void add_topic(CLI::App &app, const char *name, const char *help, Task &task,
                      const Task &print) {
    app.add_subcommand(name, help)->callback([&task, print] { task = print; });
}

// Of what cannot fail.
static Task always(void (*print)()) {
    return [print]() -> Done {
        print();
        return {};
    };
}

static CLI::App &add_question(CLI::App &app, const char *name, const char *help,
                              ScheduleQuestion &question, Task &task,
                              Done (*answer)(const ScheduleQuestion &)) {
    CLI::App &command = *app.add_subcommand(name, help);
    const auto take_collective = [&question](const std::string &called) {
        const auto collective = parse_collective(called);
        const auto found = collective ? collective : collective_called(called);
        if (!found)
            throw CLI::ValidationError(
                no_choice("COLLECTIVE", called, {collective_names.begin(), collective_names.end()})
                    .text,
                CLI::ExitCodes::ValidationError);
        question.collective = *found;
    };
    command.add_option_function<std::string>("collective", take_collective, "all_reduce, ...")
        ->required();
    command.add_option("--algo", question.algorithm, "ring, direct or oneshot");
    command.add_option("--ranks", question.ranks, "how many");
    command.add_option("--root", question.root, "of a broadcast (0)");
    command.add_option("--codec", question.codec, "codec; without, none is placed");
    command.callback(
        [&task, &question, answer] { task = [&question, answer] { return answer(question); }; });
    return command;
}

static void add_bytes(CLI::App &command, ScheduleQuestion &question) {
    command
        .add_option_function<std::string>(
            "--bytes",
            [&question](const std::string &text) {
                const auto bytes = parse_bytes(text);
                if (!bytes)
                    throw CLI::ValidationError("--bytes",
                                               "'" + text + "' is no size such as 4096 or 64M");
                question.bytes = *bytes;
            },
            "of the call's vector, as 4096 or 64M")
        ->required();
    command.add_option("--type", question.type, "type of the values (float)");
    command.add_option("--op", question.op, "operation (sum)");
}

// The schedules of all ranks may need more memory than there is.
static Done answer(const Task &task) {
    try {
        return task();
    } catch (const std::bad_alloc &) {
        return Error::make(Code::system_error, "out of memory: fewer ranks need less");
    }
}

static int run(int argc, char **argv) {
    static constexpr int usage_error = 2;
    CLI::App app("Says what QCCL is, has and would do on this machine.", "qccl-info");
    app.set_version_flag("--version", version_line("qccl-info"));
    app.require_subcommand(0, 1);
    Task task = print_everything;
    add_topic(app, "version", "the library's version", task, always(print_version));
    add_topic(app, "devices", "what can compute", task, always(print_devices));
    add_topic(app, "transports", "what can carry", task, always(print_transports));
    add_topic(app, "codecs", "what can compress", task, print_codecs);
    add_topic(app, "settings", "every setting, its value and who set it", task, print_settings);
    ScheduleQuestion question;
    CLI::App &explained = add_question(app, "explain", "what the planner would do, and why",
                                       question, task, print_explanation);
    add_bytes(explained, question);
    CLI::App &shown = add_question(app, "schedule", "one rank's schedule as text", question, task,
                                   print_schedule);
    shown.add_option("--rank", question.rank, "whose (0)");
    shown.get_option("--algo")->required();
    shown.get_option("--ranks")->required();
    CLI::App &proven = add_question(app, "verify", "prove the schedules of all ranks together",
                                    question, task, print_proof);
    proven.add_option("--file", question.file,
                      "texts to prove, one section for each rank; -: standard input");
    proven.get_option("--algo")->required();
    explained.get_option("--ranks")->required();

    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError &error) {
        return app.exit(error) == 0 ? EXIT_SUCCESS : usage_error;
    }
    const Done done = answer(task);
    if (done) return EXIT_SUCCESS;
    std::fflush(stdout);
    std::fprintf(stderr, "qccl-info: %s\n", done.error().text);
    return EXIT_FAILURE;
}

int main(int argc, char **argv) { return end_output("qccl-info", run(argc, argv)); }
