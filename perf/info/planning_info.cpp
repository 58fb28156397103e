// Implements the commands of qccl-info that plan: advise checks the input files and prints the
// advice, plan plans each tensor and writes the plan file and a table, and explain plans each call
// and prints the planner's explanation. The options of each command are here too.

#include "base/text.hpp"
#include "coll/algorithm.hpp"
#include "perf/cli/perf_arguments.hpp"
#include "perf/info/advice.hpp"
#include "perf/info/info_commands.hpp"
#include "perf/info/simulated_job.hpp"
#include "perf/report/measurement.hpp"
#include "perf/report/report.hpp"
#include "perf/report/tool_files.hpp"
#include "perf/run/input_data.hpp"
#include "plan/explain.hpp"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cinttypes>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <system_error>

namespace qccl::perf {

// ---- advise

using Json = nlohmann::ordered_json;
using Outcome = BudgetAdvice::Outcome;

static constexpr double ladder[] = {1e-1, 1e-2, 1e-3, 1e-4, 1e-5};

void add_advice_options(CLI::App &app, const char *group, AdviceRequest &request) {
    add_option(app, group, "--input", "DIR/rank%r.npy: each rank's data (%r: its number)",
               take_text(request.input))
        ->required();
    add_option(app, group, "--nmse", "the error that may be, as 1e-3 (1e-1 to 1e-5 in turn)",
               [&request](const std::string &text) -> Done {
                   Budget budget;
                   if (!read_budget_nmse(budget, text))
                       return refuse("'%.40s' is no error: expected %s", text.c_str(),
                                     budget_nmse_words.data());
                   request.nmse = budget.nmse;
                   return {};
               });
    add_option(app, group, "--json", "write JSON to this file; -: standard output",
               take_text(request.json));
    add_machine_options(app, group, request.machine);
}

// ---- machine and data

// Without another number of ranks, there is one for each file.
static Done count_ranks(MachineRequest &machine, const std::string &input) {
    const bool has_rank = input.find("%r") != std::string::npos;
    if (machine.ranks != 0 || machine.places || !has_rank) return {};
    machine.ranks = count_files(input);
    if (machine.ranks == 0)
        return invalid_argument("cannot read %.300s: there is no such file",
                                path_of_rank(input, 0).c_str());
    return {};
}

static Result<Machine> machine_with_files(const AdviceRequest &request) {
    MachineRequest machine = request.machine;
    QCCL_TRY(count_ranks(machine, request.input));
    return known_machine(machine);
}

static Done check_values(const Files &files, const std::string &pattern, uint32_t ranks) {
    constexpr size_t piece = 1 << 14;
    std::vector<double> values(piece);
    const size_t bytes = type_bytes(files.type());
    std::vector<std::byte> raw(piece * bytes);
    for (uint32_t rank = 0; rank < ranks; rank++)
        for (uint64_t first = 0; first < files.count(); first += piece) {
            const size_t count = std::min<uint64_t>(piece, files.count() - first);
            files.read(rank, files.type(), first, count, raw.data());
            load_reals(files.type(), raw.data(), count, values.data());
            const auto end = values.begin() + static_cast<std::ptrdiff_t>(count);
            const auto wrong = std::find_if_not(values.begin(), end,
                                                [](double value) { return std::isfinite(value); });
            if (wrong == end) continue;
            return invalid_argument("%s holds %g at index %" PRIu64
                                    "; the error of a sum needs finite values",
                                    path_of_rank(pattern, rank).c_str(), *wrong,
                                    first + static_cast<uint64_t>(wrong - values.begin()));
        }
    return {};
}

static Result<std::unique_ptr<Files>> open_data(const std::string &pattern, uint32_t ranks) {
    if (ranks < 2)
        return invalid_argument(
            "there is one rank, which has nothing to send: a sum needs the data of "
            "two or more, as in --input 'DIR/rank%%r.npy' with rank0.npy and "
            "rank1.npy");
    QCCL_TRY(auto files, Files::open(pattern, ranks));
    if (!info(files->type()).is_float)
        return invalid_argument("%s holds %s, and codecs encode floating point alone",
                                path_of_rank(pattern, 0).c_str(), name(files->type()));
    if (files->count() == 0)
        return invalid_argument("%s holds no values", path_of_rank(pattern, 0).c_str());
    QCCL_TRY(check_values(*files, pattern, ranks));
    if (const auto note = one_file_note(pattern); !note.empty())
        std::fprintf(stderr, "qccl-info: %s\n", note.c_str());
    return files;
}

// ---- output as text

static constexpr const char *advice_columns = "%12s  %-24s %6s %10s  %-12s %10s %10s %13s\n";

static void print_budget(const Advice &advice, const BudgetAdvice &row) {
    char budget[32], bits[32], nmse[32], faster[32];
    std::snprintf(budget, sizeof budget, "%g", row.nmse);
    if (row.outcome != Outcome::codec) {
        std::printf(advice_columns, budget, "none", "", "0",
                    spec(advice.lossless.algorithm).c_str(),
                    time_text(advice.lossless.cost.time_ns).c_str(), "",
                    row.outcome == Outcome::missed ? "none keeps it" : "none pays");
        return;
    }
    const Plan &plan = row.trial->plan;
    std::snprintf(bits, sizeof bits, "%.4g", row.trial->bits);
    std::snprintf(nmse, sizeof nmse, "%.2e", row.trial->nmse);
    std::snprintf(faster, sizeof faster, "%.2f", gain(advice, *row.trial));
    std::printf(advice_columns, budget, spec(row.trial->codec).c_str(), bits, nmse,
                spec(plan.algorithm).c_str(), time_text(plan.cost.time_ns).c_str(),
                time_text(advice.lossless.cost.time_ns - plan.cost.time_ns).c_str(), faster);
}

static void print_advice_text(const Machine &machine, const Files &files, const Advice &advice,
                              const std::vector<BudgetAdvice> &rows, const BudgetAdvice &chosen) {
    std::printf("Sum of %" PRIu64 " values (%s, %s) of %s\n\n", files.count(), name(files.type()),
                memory_text(static_cast<double>(files.count() * type_bytes(files.type()))).c_str(),
                describe(machine).c_str());
    std::printf(advice_columns, "NMSE at most", "codec", "bits", "NMSE", "algorithm", "time",
                "saved", "times as fast");
    for (const BudgetAdvice &row : rows) print_budget(advice, row);
    std::printf("\nNMSE (squared error over squared exact sum) is measured on these data; times "
                "are the planner's,\nwithout a codec %s by %s.\n\n%s\n",
                time_text(advice.lossless.cost.time_ns).c_str(),
                spec(advice.lossless.algorithm).c_str(), sentence_of(advice, chosen).c_str());
    if (chosen.outcome != Outcome::codec) return;
    std::printf("export QCCL_CODEC=%s\n", spec(chosen.trial->codec).c_str());
    // A job whose NICs do not report their rate uses a codec only if this variable gives the rate.
    // A job that has measured the rate trusts its measurement more.
    if (const auto rate = machine.remote_bytes_per_ns(); rate && !machine.has_measured_rate())
        std::printf("export QCCL_LINK_RATE=%.4gGB/s\n", *rate);
    if (const auto rate = machine.rack_bytes_per_ns())
        std::printf("export QCCL_RACK_RATE=%.4gGB/s # and QCCL_RACK, on each host the name of its "
                    "rack\n",
                    *rate);
}

// ---- output as JSON

static Json json_of(const Advice &advice, const CodecTrial &trial) {
    return {{"codec", spec(trial.codec)},
            {"bits", trial.bits},
            {"nmse", trial.nmse},
            {"algorithm", spec(trial.plan.algorithm)},
            {"time_us", trial.plan.cost.time_ns / 1e3},
            {"saved_us", (advice.lossless.cost.time_ns - trial.plan.cost.time_ns) / 1e3},
            {"speedup", gain(advice, trial)}};
}

static Json json_of(const BudgetAdvice &row) {
    static constexpr const char *outcomes[] = {"codec", "no_link", "no_gain", "missed"};
    const bool is_codec = row.outcome == Outcome::codec;
    return {{"nmse", row.nmse},
            {"outcome", outcomes[static_cast<size_t>(row.outcome)]},
            {"codec", is_codec ? Json(spec(row.trial->codec)) : Json()}};
}

static std::string advice_json(const Machine &machine, const Files &files, const Advice &advice,
                               const std::vector<BudgetAdvice> &rows, const BudgetAdvice &chosen) {
    constexpr int format_version = 1;
    const auto rate = machine.remote_bytes_per_ns();
    Json document{{"version", format_version},
                  {"count", files.count()},
                  {"type", name(files.type())},
                  {"ranks", machine.ranks},
                  {"hosts", machine.hosts()},
                  {"link_gb_per_s", rate ? Json(*rate) : Json()},
                  {"lossless",
                   {{"algorithm", spec(advice.lossless.algorithm)},
                    {"time_us", advice.lossless.cost.time_ns / 1e3}}}};
    Json codecs = Json::array(), budgets = Json::array();
    for (const CodecTrial &trial : advice.trials) codecs.push_back(json_of(advice, trial));
    for (const BudgetAdvice &row : rows) budgets.push_back(json_of(row));
    document["codecs"] = codecs;
    document["budgets"] = budgets;
    document["advice"] = json_of(chosen);
    document["advice"]["sentence"] = sentence_of(advice, chosen);
    return document.dump(1) + "\n";
}

Done print_advice(const AdviceRequest &request) {
    QCCL_TRY(const Machine machine, machine_with_files(request));
    QCCL_TRY(const auto files, open_data(request.input, machine.ranks));
    const PlannerInputs inputs = inputs_of(machine);
    ErrorMeter meter(*files, {.count = files->count(),
                              .ranks = machine.ranks,
                              .type = files->type(),
                              .codec = {},
                              .places = planned_places(machine.places.get(), inputs)});
    QCCL_TRY(const Advice advice, try_codecs(meter, inputs));
    std::vector<BudgetAdvice> rows;
    if (request.nmse) rows.push_back(advise(advice, *request.nmse));
    for (const double nmse : ladder)
        if (!request.nmse) rows.push_back(advise(advice, nmse));
    const BudgetAdvice chosen = advise(advice, request.nmse.value_or(usual_nmse));
    if (!request.json.empty())
        QCCL_TRY(write_file(request.json, advice_json(machine, *files, advice, rows, chosen)));
    if (request.json != "-") print_advice_text(machine, *files, advice, rows, chosen);
    return {};
}

// ---- plan

// The error that most trainings tolerate; bounded_codecs explains its meaning.
static constexpr const char *usual_codec = "auto:nmse=1e-3";

void add_tensor_plan_options(CLI::App &app, const char *group, TensorPlanRequest &request) {
    add_option(app, group, "--gradients",
               "the tensors: a text (name, count, type), a JSON, or a folder or pattern of .npy",
               take_text(request.gradients))
        ->required();
    add_option(app, group, "--out", "where the plan file goes (standard output)",
               take_text(request.out));
    add_option(app, group, "--codec", std::string("of what is compressed (") + usual_codec + ")",
               [&request](const std::string &text) -> Done {
                   QCCL_TRY(request.codec, parse_codec(text));
                   return {};
               });
    add_option(app, group, "--algo", "an algorithm for all of them (the fastest of each)",
               [&request](const std::string &text) -> Done {
                   QCCL_TRY(request.algorithm, parse_algorithm(text));
                   return {};
               });
    add_machine_options(app, group, request.machine);
}

template <class... Arguments>
static std::string line_of(const char *format, Arguments... arguments) {
    char line[512];
    std::snprintf(line, sizeof line, format, arguments...);
    return line;
}

static constexpr const char *tensor_columns = "%-32.200s %12s %-9s %-20s %5s  %-12s %10s %10s";

static std::string tensor_row(const NamedTensor &tensor, const TensorPlan &made) {
    const Partitioning &parts = made.partitioning;
    return line_of(tensor_columns, tensor.name.c_str(), std::to_string(tensor.count).c_str(),
                   name(tensor.type), spec(made.plan.codec).c_str(),
                   std::to_string(parts.best.parts).c_str(), spec(made.plan.algorithm).c_str(),
                   time_text(parts.best.time).c_str(), time_text(parts.lossless.time).c_str());
}

static std::vector<std::string> table_of(const TensorPlanRequest &request, const Codec &codec,
                                         const Machine &machine,
                                         const std::vector<NamedTensor> &tensors,
                                         const std::vector<TensorPlan> &plans) {
    double planned = 0, lossless = 0;
    size_t compressed = 0;
    std::vector<std::string> lines{line_of("The sums of %.200s on %s, with %s",
                                           request.gradients.c_str(), describe(machine).c_str(),
                                           spec(codec).c_str()),
                                   "",
                                   line_of(tensor_columns, "tensor", "values", "type", "codec",
                                           "parts", "algorithm", "time", "lossless")};
    for (size_t i = 0; i < tensors.size(); i++) {
        lines.push_back(tensor_row(tensors[i], plans[i]));
        planned += plans[i].partitioning.best.time;
        lossless += plans[i].partitioning.lossless.time;
        compressed += plans[i].partitioning.is_compressed;
    }
    lines.emplace_back();
    lines.push_back(line_of("%zu of %zu tensors are compressed; one after the other all take %s "
                            "instead of %s, as predicted.",
                            compressed, tensors.size(), time_text(planned).c_str(),
                            time_text(lossless).c_str()));
    return lines;
}

static Result<std::vector<TensorPlan>> plan_all(const std::vector<NamedTensor> &tensors,
                                                TensorPlanner &planner) {
    std::vector<TensorPlan> plans;
    for (const NamedTensor &tensor : tensors) {
        QCCL_TRY(TensorPlan made, planner.plan(tensor.count, tensor.type));
        plans.push_back(std::move(made));
    }
    return plans;
}

Done print_tensor_plan(const TensorPlanRequest &request) {
    QCCL_TRY(const Codec codec,
             request.codec ? Result<Codec>(*request.codec) : parse_codec(usual_codec));
    QCCL_TRY(const std::vector<NamedTensor> tensors, read_tensors(request.gradients));
    QCCL_TRY(const Machine machine, known_machine(request.machine));
    TensorPlanner planner({.ranks = machine.ranks, .codec = codec, .places = machine.places.get()},
                          inputs_of(machine), request.algorithm);
    QCCL_TRY(const std::vector<TensorPlan> plans, plan_all(tensors, planner));
    const PlanFile file =
        plan_file_of(tensors, plans, machine.ranks, static_cast<uint32_t>(machine.hosts()));
    std::string table, comments;
    for (const std::string &line : table_of(request, codec, machine, tensors, plans)) {
        table.append(line).append("\n");
        comments.append(line.empty() ? "#" : "# ").append(line).append("\n");
    }
    const std::string out = request.out.empty() ? "-" : request.out;
    QCCL_TRY(write_file(out, comments + print(file)));
    if (out == "-") return {};
    std::error_code unknown; // wherever the job starts
    const std::filesystem::path path = std::filesystem::absolute(out, unknown);
    std::printf("%s\nexport QCCL_PLAN_FILE=%s\n", table.c_str(),
                unknown ? out.c_str() : path.c_str());
    return {};
}

// ---- Options of explain

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

static void add_call(CLI::App &command, ExplainRequest &request) {
    static constexpr auto *group = "Call";
    PerfArguments &calls = request.calls;
    add_option(command, group, "COLLECTIVE",
               listed({collective_names.begin(), collective_names.end()}),
               take_collective(calls.collective))
        ->required();
    add_option(command, group, "-d,--datatype,--type", "type of the values (float)",
               take_type(calls));
    add_option(command, group, "-o,--op", "operation (sum)", take_op(calls));
    add_option(command, group, "-r,--root", "of a collective that has one (0)",
               take_root(calls.root, most_ranks_asked));
    add_option(command, group, "--codec", "codecs, separated by commas (as the settings say)",
               take_codecs(request.codecs));
    add_option(command, group, "--algo", listed(names_of(algorithm_table())),
               take_algorithm(request.algorithm));
}

CLI::App &add_explain_command(CLI::App &app, ExplainRequest &request) {
    CLI::App &command =
        *app.add_subcommand("explain", "what the planner would do with calls, and why");
    PerfArguments &calls = request.calls;
    add_option(command, "Sizes", "--bytes", "one size, as 4096 or 64M",
               [&calls](const std::string &text) -> Done {
                   QCCL_TRY(take_bytes(calls.min_bytes)(text));
                   calls.max_bytes = calls.min_bytes;
                   return {};
               });
    add_sizes(command, {calls.min_bytes, calls.max_bytes, calls.step_bytes, calls.step_factor});
    for (const char *const range : {"--minbytes", "--maxbytes"})
        command.get_option("--bytes")->excludes(command.get_option(range));
    add_call(command, request);
    add_option(command, "Call", "--input",
               "DIR/rank%r.npy: each rank's values, whose error is predicted from a sample",
               take_text(request.input));
    for (const char *const of_files : {"--bytes", "--minbytes", "--maxbytes", "--datatype"})
        command.get_option("--input")->excludes(command.get_option(of_files));
    add_machine_options(command, "Machine", request.asked);
    add_option(command, "Results", "--json",
               "write JSON, one row for each size and codec; -: standard output, and no text",
               take_text(request.json_file));
    return command;
}

Done complete_request(ExplainRequest &request) {
    PerfArguments &calls = request.calls;
    if (!request.input.empty()) {
        QCCL_TRY(count_ranks(request.asked, request.input));
        if (calls.collective != Collective::all_reduce || calls.ops.front() != RedOp::sum)
            return refuse("--input: the error of values is predicted of sums by all_reduce alone");
    }
    if (!request.asked.says_ranks())
        return refuse("--ranks, --hosts or --topology is required: how many ranks are there?");
    QCCL_TRY(request.machine, find_machine(request.asked));
    calls.ranks = request.machine.ranks;
    QCCL_TRY(check_sizes(calls));
    if (calls.collective == Collective::barrier) {
        calls.min_bytes = calls.max_bytes = 0;
        if (!request.codecs.empty()) return refuse("--codec: a barrier has no values to encode");
    }
    if (!calls.root) return refuse("--root all: name one root");
    if (*calls.root >= calls.ranks)
        return refuse("--root %u is none of the %u ranks", *calls.root, calls.ranks);
    const DataType type = calls.types ? calls.types->front() : DataType::float32;
    QCCL_TRY(check_op(calls.collective, type, calls.ops.front()));
    for (const Codec &codec : request.codecs)
        QCCL_TRY(check_codec(codec, calls.collective, type, calls.ops.front()));
    if (request.algorithm && !request.algorithm.has(calls.collective))
        return refuse("%s has no %s", spec(request.algorithm).c_str(), name(calls.collective));
    return {};
}

// ---- explain

namespace {

constexpr const char *document_tail = "\n]}\n";

template <class Link> Json json_of(const std::optional<Link> &link) {
    if (!link) return nullptr;
    return {{"class", name(link->link_class)},
            {"GBps", link->bytes_per_ns ? Json(*link->bytes_per_ns) : Json(nullptr)}};
}

Json json_of(const ExplainRequest &request) {
    const Machine &machine = request.machine;
    const std::string &topology = request.asked.topology;
    return {{"topology", topology.empty() ? Json(nullptr) : Json(topology)},
            {"ranks", machine.ranks},
            {"hosts", machine.hosts()},
            {"gpus", machine.has_gpus},
            {"cores", machine.cores ? Json(*machine.cores) : Json(nullptr)},
            {"link_between_hosts", json_of(machine.remote)},
            {"link_in_host", json_of(machine.local)}};
}

class Explainer {
public:
    explicit Explainer(const ExplainRequest &request)
        : request_(request), machine_(request.machine), type_(sweep_types(request.calls).front()),
          op_(request.calls.ops.front()),
          link_bytes_(machine_.topology ? link_class_of(machine_.topology)
                                        : link_class_by_hosts(machine_.places.get())) {}

    Done run() {
        if (!request_.input.empty()) {
            QCCL_TRY(files_, open_data(request_.input, machine_.ranks));
            type_ = files_->type();
        }
        QCCL_TRY(policy_, policy_here(machine_.settings, machine_.ranks,
                                      static_cast<uint32_t>(machine_.hosts())));
        if (!request_.json_file.empty()) {
            QCCL_TRY(json_, JsonFile::open(request_.json_file));
            QCCL_TRY(json_->begin(head(), document_tail));
        }
        for (const uint64_t bytes : sizes()) {
            if (request_.codecs.empty()) QCCL_TRY(explain_call(bytes, nullptr));
            for (const Codec &codec : request_.codecs) QCCL_TRY(explain_call(bytes, &codec));
        }
        return json_ ? json_->deliver() : Done{};
    }

private:
    std::string head() const {
        Json run = describe_run(request_.command_line);
        run["machine"] = json_of(request_);
        std::string text = run.dump(-1, ' ', false, Json::error_handler_t::replace);
        text.pop_back(); // remove the closing brace, which document_tail contains
        return text + ",\n\"rows\": [";
    }

    std::vector<uint64_t> sizes() const {
        return files_ ? std::vector{files_->count() * type_bytes(type_)}
                      : sweep_sizes(request_.calls);
    }

    Done explain_call(uint64_t bytes, const Codec *named) {
        const Collective collective = request_.calls.collective;
        const uint64_t count = bytes / type_bytes(type_) / parts_of(collective, machine_.ranks);
        QCCL_TRY(const CallChoice choice,
                 policy_.choose(named, request_.algorithm,
                                policy_.traits(collective, type_, op_, count)));
        const Problem problem{.collective = collective,
                              .count = count,
                              .ranks = machine_.ranks,
                              .root = *request_.calls.root,
                              .type = type_,
                              .codec = choice.codec,
                              .places = machine_.places.get()};
        QCCL_TRY(Explanation explanation, explain(problem, inputs_of(machine_, choice.pieces),
                                                  choice.algorithm, &link_bytes_));
        explanation.rules = choice.reasons;
        if (files_)
            for (ExplainedCandidate &candidate : explanation.candidates)
                QCCL_TRY(predict(candidate, explanation.planned));
        return show(explanation);
    }

    // Rehearses what the candidate does with a sample of the values.
    Done predict(ExplainedCandidate &candidate, const Problem &problem) const {
        const Plan &plan = candidate.plan;
        const bool is_rehearsed = candidate.status != CandidateStatus::impossible &&
                                  plan.codec.loses() && !plan.codec.shares_scales();
        if (!is_rehearsed) return {};
        QCCL_TRY(candidate.expected_nmse, sampled_nmse(rehearsal_of(plan, problem), *files_));
        return {};
    }

    Done show(const Explanation &explanation) {
        if (request_.json_file != "-") {
            std::printf("%s%s", is_first_ ? "" : "\n", print_text(explanation, is_first_).c_str());
            is_first_ = false;
        }
        if (!json_) return {};
        Json row = Json::parse(print_json(explanation));
        if (reduces(request_.calls.collective)) row["op"] = name(op_);
        return json_->add(row.dump(), document_tail);
    }

    const ExplainRequest &request_;
    const Machine &machine_;
    DataType type_;
    const RedOp op_;
    LinkByteCounter link_bytes_;
    CallPolicy policy_;
    std::unique_ptr<Files> files_; // null: the values are not known
    std::optional<JsonFile> json_;
    bool is_first_ = true;
};

} // namespace

Done print_explanations(const ExplainRequest &request) { return Explainer(request).run(); }

} // namespace qccl::perf
