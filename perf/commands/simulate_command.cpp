// Implements qccl-perf simulate: its options and the checks of their combinations, the simulation
// of each case of the sweep, and the output, which looks like that of a measurement.

#include "base/text.hpp"
#include "perf/cli/command_line.hpp"
#include "perf/cli/perf_arguments.hpp"
#include "perf/commands/perf_commands.hpp"
#include "perf/info/simulated_job.hpp"
#include "perf/report/report.hpp"
#include "perf/report/tool_files.hpp"
#include "perf/run/benchmark.hpp"
#include "perf/run/launch.hpp"
#include "plan/rank_program.hpp"

#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

namespace qccl::perf {

// ---- Options

static constexpr const char *program = "qccl-perf simulate";

static Take take_simulated(Collective &collective) {
    return [&collective](const std::string &text) -> Done {
        const auto found = collective_called(text);
        if (!found)
            return no_choice("COLLECTIVE", text,
                             {value_collective_names.begin(), value_collective_names.end()});
        collective = *found;
        return {};
    };
}

static void add_calls(CLI::App &app, PerfArguments &to) {
    static constexpr auto *group = "Calls";
    add_option(app, group, "COLLECTIVE",
               listed({value_collective_names.begin(), value_collective_names.end()}).c_str(),
               take_simulated(to.collective))
        ->required();
    add_option(app, group, "-o,--op", "sum, prod, min, max, avg or all (sum)", take_ops(to.ops));
    add_option(app, group, "-d,--datatype", "type of the values, or all (float)",
               take_types(to.types));
    add_option(app, group, "-r,--root", "root of collectives that have one, or all (0)",
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

static Done check_together(SimulateArguments &to, const MachineRequest &machine) {
    PerfArguments &calls = to.calls;
    QCCL_TRY(to.machine, find_machine(machine));
    calls.ranks = to.machine.ranks;
    QCCL_TRY(check_sizes(calls));
    if (calls.root && *calls.root >= calls.ranks)
        return refuse("--root %u is none of the %u ranks", *calls.root, calls.ranks);
    QCCL_TRY(keep_possible_ops(calls));
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
    MachineRequest machine;
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

// ---- Simulation and output

using Json = nlohmann::ordered_json;

// A call and its simulation.
struct SimulatedCase {
    SimulatedJob::PlannedCall planned;
    Simulation simulation;
};

class SimulatedRun {
public:
    SimulatedRun(const SimulateArguments &arguments, const std::vector<std::string> &command_line)
        : arguments_(arguments), calls_(arguments.calls), command_line_(command_line),
          out_(calls_.json_file == "-" ? stderr : stdout), report_(calls_, "simulate", out_),
          progress_(sweep_points(calls_) * calls_.codecs.size() * calls_.algorithms.size()) {}

    Done run() {
        QCCL_TRY(check_combinations(calls_));
        QCCL_TRY(SimulatedJob job, SimulatedJob::create(arguments_.machine, ""));
        job_.emplace(std::move(job));
        if (!calls_.json_file.empty()) {
            QCCL_TRY(json_, JsonFile::open(calls_.json_file));
            QCCL_TRY(json_->begin(rows_head(command_line_), rows_tail));
        }
        print_header();
        for (const DataType type : sweep_types(calls_))
            for (const RedOp op : calls_.ops) {
                if (!check_op(calls_.collective, type, op)) continue;
                for (const uint32_t root : sweep_roots(calls_, calls_.ranks))
                    for (const uint64_t size : sweep_sizes(calls_))
                        QCCL_TRY(run_point(
                            operation_of(calls_.collective, type, op, root, calls_.ranks, size)));
            }
        progress_.clear();
        for (const std::string &note : notes_) std::fprintf(out_, "# %s\n", note.c_str());
        std::fprintf(out_, "# Avg bus bandwidth    : %g\n#\n", report_.average_busbw());
        QCCL_TRY(flush(out_));
        return json_ ? json_->deliver() : Done{};
    }

private:
    void print_header() const {
        const TieredRates &rates = job_->rates();
        const Machine &machine = arguments_.machine;
        std::fprintf(out_, "# %s: simulated, nothing is measured\n# %u ranks on %zu %s",
                     version_line("qccl-perf").c_str(), calls_.ranks, machine.hosts(),
                     machine.hosts() == 1 ? "host" : "hosts");
        if (machine.cores)
            std::fprintf(out_,
                         machine.hosts_share_cores ? " with %g cores together" : " of %g cores",
                         *machine.cores);
        if (machine.hosts() > 1)
            std::fprintf(out_, "; lines of %s%g GB/s, %g us",
                         machine.remote_bytes_per_ns() ? "" : "unknown rate, taken for ",
                         rates.line_rate, job_->speeds().remote.alone.latency_ns / 1e3);
        std::fprintf(out_, "%s\n", racks_text(machine).c_str());
        report_.print_columns();
    }

    Done run_point(const Operation &operation) {
        for (const std::string &asked : calls_.algorithms) {
            std::optional<SimulatedCase> lossless; // for comparison, once a codec needs it
            for (const Codec &codec : calls_.codecs) {
                QCCL_TRY(const SimulatedCase done, run_case(operation, codec, asked));
                if (!codec.is_lossless() && calls_.has_lossless_beside && !lossless) {
                    QCCL_TRY(lossless, run_case(operation, Codec(), asked));
                }
                QCCL_TRY(show(operation, codec, done,
                              codec.is_lossless() ? nullptr
                              : lossless          ? &*lossless
                                                  : nullptr));
            }
        }
        return {};
    }

    Result<SimulatedCase> run_case(const Operation &operation, const Codec &codec,
                                   const std::string &asked) {
        Algorithm forced;
        if (asked != "auto") {
            QCCL_TRY(forced, parse_algorithm(asked));
        }
        SimulatedCase done;
        const bool is_named = arguments_.names_codecs || !codec.is_lossless();
        QCCL_TRY(done.planned, job_->plan(operation, is_named ? &codec : nullptr, forced));
        QCCL_TRY(done.simulation, simulated(done.planned));
        if (!has_files_ && !arguments_.goal_file.empty())
            QCCL_TRY(write_goal_file(done.planned.call));
        has_files_ = true;
        return done;
    }

    Result<Simulation> simulated(const SimulatedJob::PlannedCall &planned) {
        SimulationOptions options = repeated_calls(calls_.ranks);
        options.progress = [this](uint64_t done, uint64_t of) { tell_progress(done, of); };
        if (!arguments_.perfetto_file.empty() && !has_files_) QCCL_TRY(write_trace(planned));
        return job_->run(planned, options);
    }

    // Traces a single call that no other call precedes.
    Done write_trace(const SimulatedJob::PlannedCall &planned) const {
        constexpr uint32_t most_ranks_shown = 256;
        SimulationOptions options;
        if (planned.call.problem.ranks <= most_ranks_shown) options.merging = Merging::none;
        QCCL_TRY(PerfettoTrace trace,
                 PerfettoTrace::open(arguments_.perfetto_file, planned.call.problem.places));
        options.trace = [&trace](const SimulatedSpan &span) { trace.add(span); };
        QCCL_TRY(job_->run(planned, options));
        return trace.close();
    }

    Done write_goal_file(const SimulatedCall &call) const {
        QCCL_TRY(OutputFile file, OutputFile::open(arguments_.goal_file));
        QCCL_TRY(write_goal(call, [&file](const std::string &text) { return file.write(text); }));
        return file.close();
    }

    void tell_progress(uint64_t done, uint64_t of) {
        const uint64_t percent = 100 * done / of;
        if (percent == percent_) return;
        percent_ = percent;
        progress_.show(cases_ + 1, std::to_string(percent) + " %");
    }

    Done show(const Operation &operation, const Codec &codec, const SimulatedCase &done,
              const SimulatedCase *lossless) {
        const double us = done.simulation.time_ns / 1e3;
        const Plan &plan = done.planned.plan;
        Row row{.operation = operation,
                .codec = codec,
                .used_codec = plan.codec,
                .algorithm = spec(plan.algorithm),
                .transport = "simulated",
                .devices = {},
                .baseline = {},
                .nmse_predicted = {},
                .out_of_place = {},
                .in_place = {}};
        const bool has_error = !reduces(operation.collective) || adds(operation.op);
        if (has_error && info(operation.type).is_float)
            row.nmse_predicted = predicted_nmse(plan, operation.type);
        Measurement &shown = row.out_of_place;
        shown.time_us.mean = shown.time_us.median = shown.time_us.p99 = shown.shown_us = us;
        shown.wire_bytes = done.simulation.wire_bytes;
        if (lossless && us > 0) {
            shown.speedup = lossless->simulation.time_ns / 1e3 / us;
            if (lossless->planned.plan.algorithm == plan.algorithm && shown.wire_bytes > 0)
                shown.ratio = static_cast<double>(lossless->simulation.wire_bytes) /
                              static_cast<double>(shown.wire_bytes);
        }
        row.in_place.is_known = false;
        if (is_unpaid(codec, plan.codec)) notes_.insert(unpaid_note(codec));
        cases_++;
        progress_.clear();
        report_.print_row(row);
        QCCL_TRY(flush(out_));
        if (json_) QCCL_TRY(json_->add(json_of(row, done.simulation), rows_tail));
        return {};
    }

    static std::string json_of(const Row &row, const Simulation &simulation) {
        Json json = row_json(row, false);
        json["simulated"] = true;
        json["ranks_simulated"] = simulation.classes;
        json["messages"] = simulation.messages;
        json["critical_path_us"] = {{"compute", simulation.critical.compute_ns / 1e3},
                                    {"messages", simulation.critical.handling_ns / 1e3},
                                    {"wire", simulation.critical.wire_ns / 1e3},
                                    {"latency", simulation.critical.latency_ns / 1e3}};
        json["rank_busy_us"] = simulation.compute_ns / 1e3;
        Json links = Json::array();
        constexpr size_t most_links = 16;
        for (size_t i = 0; i < std::min(simulation.links.size(), most_links); i++) {
            const Simulation::LinkLoad &link = simulation.links[i];
            links.push_back(
                {{"name", link.name}, {"alike", link.count}, {"busy_us", link.busy_ns / 1e3}});
        }
        json["busiest_links"] = links;
        return json.dump();
    }

    const SimulateArguments &arguments_;
    const PerfArguments &calls_;
    const std::vector<std::string> &command_line_;
    std::FILE *const out_;
    Report report_;
    ProgressLine progress_;
    std::optional<SimulatedJob> job_;
    std::optional<JsonFile> json_;
    std::set<std::string> notes_;
    bool has_files_ = false; // the trace and the GOAL file take the first call
    uint64_t cases_ = 0, percent_ = 0;
};

int run_simulate_command(const std::vector<std::string> &words,
                         const std::vector<std::string> &command_line) {
    const auto parsed = parse_simulate_arguments(words);
    if (const Answer *const answer = std::get_if<Answer>(&parsed)) return tell(*answer);
    const Done done = SimulatedRun(std::get<SimulateArguments>(parsed), command_line).run();
    if (done) return EXIT_SUCCESS;
    std::fflush(stdout);
    std::fprintf(stderr, "qccl-perf simulate: %s\n", done.error().text);
    return done.error().code == Code::invalid_argument ? usage_error : EXIT_FAILURE;
}

} // namespace qccl::perf
