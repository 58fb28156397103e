// Implements qccl-perf calibrate: its arguments, the checks of the output file, and the writing of
// the figures.
#include "perf/commands/perf_commands.hpp"

#include "base/system.hpp"
#include "perf/cli/command_line.hpp"
#include "perf/commands/calibration_run.hpp"
#include "perf/report/report.hpp"
#include "perf/run/session.hpp"
#include "topology/sources/calibration_source.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <utility>
#include <variant>

#include <CLI/CLI.hpp>
#include <unistd.h>

namespace qccl::perf {

namespace {

constexpr const char *program = "qccl-perf calibrate";

struct CalibrateArguments {
    PerfArguments ranks; // only the options that define the ranks are used
    CalibrationExtent extent;
    std::string file;         // "-": standard output
    bool is_in_cache = false; // in the user's cache directory, created if missing
};

std::variant<CalibrateArguments, Answer> parse(std::vector<std::string> words) {
    CalibrateArguments parsed;
    const Started started = how_started();
    CLI::App app("Measures calls of these ranks and codecs of one core, and writes the figures by "
                 "which the planner then counts. Nothing else should run meanwhile.",
                 program);
    app.set_version_flag("--version", version_line("qccl-perf"));
    add_ranks(app, parsed.ranks, started);
    add_option(app, "Results", "-o,--out",
               "file for the figures; - is standard output (the one in the user's cache directory "
               "that the library reads by itself)",
               take_text(parsed.file));
    add_option(app, "Results", "--largest",
               "largest vectors that are measured, 64K or more (64M); larger calls then count as "
               "these",
               [&parsed](const std::string &text) -> Done {
                   QCCL_TRY(take_bytes(parsed.extent.largest)(text));
                   if (parsed.extent.largest >= least_largest_calibrated) return {};
                   return refuse("'%.40s' is too little: smaller calls do not show what bytes cost",
                                 text.c_str());
               });
    add_option(app, "Results", "--rounds",
               "how often each call is measured, 1 to 3 (3, and 1 or 2 for calls of 4M and more)",
               take_count(parsed.extent.rounds, 1, most_calibrated_rounds));
    add_option(app, "Results", "-n,--iters",
               "most iterations of a round, 1 to 200 (200, and fewer for calls of 4K and more)",
               take_count(parsed.extent.iterations, 1, most_calibrated_iterations));
    if (auto answer = read_command_line(app, program, std::move(words))) return *answer;
    parsed.is_in_cache = parsed.file.empty();
    if (parsed.is_in_cache) parsed.file = calibration_path();
    if (parsed.file.empty())
        return refusal(program, "there is no cache directory (neither HOME nor XDG_CACHE_HOME is "
                                "set): name a file by --out");
    return parsed;
}

bool is_stdout(const CalibrateArguments &arguments) { return arguments.file == "-"; }

// Checks before anything is measured that the file can be written.
Done check_file(const CalibrateArguments &arguments) {
    if (is_stdout(arguments)) return {};
    const std::filesystem::path path(arguments.file);
    std::error_code error;
    if (arguments.is_in_cache && path.has_parent_path())
        std::filesystem::create_directories(path.parent_path(), error);
    const std::string folder = path.has_parent_path() ? path.parent_path().string() : ".";
    // A file must not replace a device. A symbolic link is followed, and its target is replaced.
    const bool is_other = std::filesystem::exists(path, error) &&
                          !std::filesystem::is_regular_file(std::filesystem::status(path, error));
    if (error || is_other || access(folder.c_str(), W_OK | X_OK) != 0)
        return invalid_argument("--out: %.300s cannot be written", arguments.file.c_str());
    if (!std::filesystem::exists(path) || std::filesystem::file_size(path, error) == 0) return {};
    if (const auto file = read_calibration(arguments.file); !file)
        return invalid_argument("--out: %.200s is there already, and %s", arguments.file.c_str(),
                                file.error().text);
    return {};
}

Done check(const CalibrateArguments &arguments, uint32_t ranks, bool is_first) {
    if (ranks < 2)
        return invalid_argument("one rank has nobody to send to: calibrate with 2 or more");
    return is_first ? check_file(arguments) : Done();
}

// Returns what earlier calibrations of this machine have found for other sets of ranks.
CalibrationFile earlier(const CalibrateArguments &arguments) {
    const std::string machine = machine_identity();
    if (!is_stdout(arguments))
        if (auto file = read_calibration(arguments.file); file && file->machine == machine)
            return std::move(*file);
    return {.machine = machine, .figures = {}};
}

// Writes a new file and renames it, so that a job that starts meanwhile reads either the old file
// or the new one.
Done write_whole(const std::string &name, const std::string &text) {
    std::error_code error;
    const std::filesystem::path led_to = std::filesystem::weakly_canonical(name, error);
    const std::string path = error ? name : led_to.string();
    const std::string beside = path + "." + std::to_string(getpid());
    std::FILE *const file = std::fopen(beside.c_str(), "we");
    const bool is_written = file && std::fputs(text.c_str(), file) >= 0;
    if (file && std::fclose(file) == 0 && is_written && rename(beside.c_str(), path.c_str()) == 0)
        return {};
    const int reason = errno;
    (void)unlink(beside.c_str());
    return Error::make(Code::system_error, "%.200s cannot be written: %s", path.c_str(),
                       describe_errno(reason).c_str());
}

Done deliver(const CalibrateArguments &arguments, const CalibrationFile &file,
             const Machine &machine, const Calibrated &found) {
    const std::string text = "# last of " + machine_text(machine) + "\n" + print(file);
    std::FILE *const out = is_stdout(arguments) ? stderr : stdout;
    if (is_stdout(arguments))
        std::fputs(text.c_str(), stdout);
    else
        QCCL_TRY(write_whole(arguments.file, text));
    constexpr double percent = 100;
    std::fprintf(out,
                 "%u calls of %s and %u codecs measured; the figures predict %.0f %% of the calls "
                 "within 20 %%, and jobs like this one have them corrected\n",
                 found.calls, machine_text(machine).c_str(), found.codecs, found.within * percent);
    if (!is_stdout(arguments)) std::fprintf(out, "written to %s\n", arguments.file.c_str());
    return {};
}

Result<int> act(const CalibrateArguments &arguments, RankGroup &rank_group, qcclComm_t comm) {
    QCCL_TRY(const Machine machine, machine_of(rank_group));
    std::optional<ProgressLine> line;
    uint64_t steps_of_line = 0;
    const TellStep tell = [&](uint64_t step, uint64_t steps, const std::string &what) {
        if (steps != std::exchange(steps_of_line, steps)) line.emplace(steps);
        line->show(step, what);
    };
    CalibrationFile file = rank_group.rank() == 0 ? earlier(arguments) : CalibrationFile();
    QCCL_TRY(const Calibrated found,
             calibrate(rank_group, comm, machine, file.figures, arguments.extent, tell));
    line.reset();
    if (rank_group.rank() != 0) return EXIT_SUCCESS;
    file.figures.update(found.figures);
    file.replace(found.job);
    // The jobs measured longest ago are dropped first to keep the file within its size limit.
    while (print(file).size() > most_calibration_bytes && file.jobs.size() > 1)
        file.jobs.erase(file.jobs.begin());
    QCCL_TRY(deliver(arguments, file, machine, found));
    return EXIT_SUCCESS;
}

} // namespace

int run_calibrate_command(std::vector<std::string> words) {
    auto parsed = parse(std::move(words));
    if (const Answer *const answer = std::get_if<Answer>(&parsed)) return tell_once(*answer);
    const CalibrateArguments &arguments = std::get<CalibrateArguments>(parsed);
    return start_ranks({
        .launch = arguments.ranks.launch,
        .ranks = arguments.ranks.ranks,
        .prepare = [&](uint32_t ranks, bool is_first) { return check(arguments, ranks, is_first); },
        .config = [](uint32_t) { return lossless_config(); },
        .act = [&](RankGroup &rank_group, qcclComm_t comm,
                   const MpiModule *) { return act(arguments, rank_group, comm); },
    });
}

} // namespace qccl::perf
