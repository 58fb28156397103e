// Implements qccl-info advise: its options, the checks of the input files, and the answer as text
// and as JSON.
#include "perf/advice_info.hpp"

#include "perf/advice.hpp"
#include "perf/machine_text.hpp"
#include "perf/number_text.hpp"
#include "perf/output_file.hpp"
#include "perf/values.hpp"

#include <algorithm>
#include <cinttypes>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <system_error>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

namespace qccl::perf {

using Json = nlohmann::ordered_json;
using Outcome = BudgetAdvice::Outcome;

static constexpr double ladder[] = {1e-1, 1e-2, 1e-3, 1e-4, 1e-5};

void add_advice_options(CLI::App &app, const char *group, AdviceQuestion &question) {
    add_option(app, group, "--input", "DIR/rank%r.npy: each rank's data (%r: its number)",
               take_text(question.input))
        ->required();
    add_option(app, group, "--nmse", "the error that may be, as 1e-3 (1e-1 to 1e-5 in turn)",
               [&question](const std::string &text) -> Done {
                   Budget budget;
                   if (!read_budget_nmse(budget, text))
                       return refuse("'%.40s' is no error: expected %s", text.c_str(),
                                     budget_nmse_words.data());
                   question.nmse = budget.nmse;
                   return {};
               });
    add_option(app, group, "--json", "write JSON to this file; -: standard output",
               take_text(question.json));
    add_machine_options(app, group, question.machine);
}

// ---- machine and data

// Counts the files that exist for ranks 0, 1 and so on, up to the first that is missing.
static uint32_t count_files(const std::string &pattern) {
    uint32_t ranks = 0;
    std::error_code ignored;
    while (ranks < most_ranks_asked &&
           std::filesystem::exists(path_of_rank(pattern, ranks), ignored))
        ranks++;
    return ranks;
}

static Result<Machine> machine_of(const AdviceQuestion &question) {
    MachineQuestion machine = question.machine;
    const bool has_rank = question.input.find("%r") != std::string::npos;
    if (machine.ranks == 0 && !machine.places && has_rank) {
        machine.ranks = count_files(question.input);
        if (machine.ranks == 0)
            return Error::make(Code::invalid_argument, "cannot read %.300s: there is no such file",
                               path_of_rank(question.input, 0).c_str());
    }
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
            return Error::make(Code::invalid_argument,
                               "%s holds %g at index %" PRIu64
                               ", and of a sum that is no number nothing can be lost",
                               path_of_rank(pattern, rank).c_str(), *wrong,
                               first + static_cast<uint64_t>(wrong - values.begin()));
        }
    return {};
}

static Result<std::unique_ptr<Files>> open_data(const std::string &pattern, uint32_t ranks) {
    if (ranks < 2)
        return Error::make(Code::invalid_argument,
                           "there is one rank, which has nothing to send: a sum needs the data of "
                           "two or more, as in --input 'DIR/rank%%r.npy' with rank0.npy and "
                           "rank1.npy");
    QCCL_TRY(auto files, Files::open(pattern, ranks));
    if (!info(files->type()).is_float)
        return Error::make(Code::invalid_argument,
                           "%s holds %s, and codecs encode floating point alone",
                           path_of_rank(pattern, 0).c_str(), name(files->type()));
    if (files->count() == 0)
        return Error::make(Code::invalid_argument, "%s holds no values",
                           path_of_rank(pattern, 0).c_str());
    QCCL_TRY(check_values(*files, pattern, ranks));
    return files;
}

// ---- output as text

static constexpr const char *columns = "%12s  %-24s %6s %10s  %-12s %10s %10s %13s\n";

static void print_row(const Advice &advice, const BudgetAdvice &row) {
    char budget[32], bits[32], nmse[32], faster[32];
    std::snprintf(budget, sizeof budget, "%g", row.nmse);
    if (row.outcome != Outcome::codec) {
        std::printf(columns, budget, "none", "", "0", spec(advice.lossless.algorithm).c_str(),
                    time_text(advice.lossless.cost.time_ns).c_str(), "",
                    row.outcome == Outcome::missed ? "none keeps it" : "none pays");
        return;
    }
    const Plan &plan = row.trial->plan;
    std::snprintf(bits, sizeof bits, "%.4g", row.trial->bits);
    std::snprintf(nmse, sizeof nmse, "%.2e", row.trial->nmse);
    std::snprintf(faster, sizeof faster, "%.2f", gain(advice, *row.trial));
    std::printf(columns, budget, spec(row.trial->codec).c_str(), bits, nmse,
                spec(plan.algorithm).c_str(), time_text(plan.cost.time_ns).c_str(),
                time_text(advice.lossless.cost.time_ns - plan.cost.time_ns).c_str(), faster);
}

static void print_text(const Machine &machine, const Files &files, const Advice &advice,
                       const std::vector<BudgetAdvice> &rows, const BudgetAdvice &chosen) {
    std::printf("Sum of %" PRIu64 " values (%s, %s) of %s\n\n", files.count(), name(files.type()),
                memory_text(static_cast<double>(files.count() * type_bytes(files.type()))).c_str(),
                describe(machine).c_str());
    std::printf(columns, "NMSE at most", "codec", "bits", "NMSE", "algorithm", "time", "saved",
                "times as fast");
    for (const BudgetAdvice &row : rows) print_row(advice, row);
    std::printf("\nNMSE (squared error over squared exact sum) is measured on these data; times "
                "are the planner's,\nwithout a codec %s by %s.\n\n%s\n",
                time_text(advice.lossless.cost.time_ns).c_str(),
                spec(advice.lossless.algorithm).c_str(), sentence_of(advice, chosen).c_str());
    if (chosen.outcome != Outcome::codec) return;
    std::printf("export QCCL_CODEC=%s\n", spec(chosen.trial->codec).c_str());
    // A job whose NICs do not report their rate uses a codec only if this variable gives the rate.
    // A job that has measured the rate trusts its measurement more.
    if (const auto rate = machine.far_bytes_per_ns(); rate && !machine.has_measured_rate())
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

static std::string json_text(const Machine &machine, const Files &files, const Advice &advice,
                             const std::vector<BudgetAdvice> &rows, const BudgetAdvice &chosen) {
    constexpr int format_version = 1;
    const auto rate = machine.far_bytes_per_ns();
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

Done print_advice(const AdviceQuestion &question) {
    QCCL_TRY(const Machine machine, machine_of(question));
    QCCL_TRY(const auto files, open_data(question.input, machine.ranks));
    const PlannerInputs inputs = inputs_of(machine);
    ErrorMeter meter(*files, {.count = files->count(),
                              .ranks = machine.ranks,
                              .type = files->type(),
                              .codec = {},
                              .places = planned_places(machine.places.get(), inputs)});
    QCCL_TRY(const Advice advice, try_codecs(meter, inputs));
    std::vector<BudgetAdvice> rows;
    if (question.nmse) rows.push_back(advise(advice, *question.nmse));
    for (const double nmse : ladder)
        if (!question.nmse) rows.push_back(advise(advice, nmse));
    const BudgetAdvice chosen = advise(advice, question.nmse.value_or(usual_nmse));
    if (question.input.find("%r") == std::string::npos)
        std::fprintf(stderr, "qccl-info: %s\n", one_file_note(question.input).c_str());
    if (!question.json.empty())
        QCCL_TRY(write_file(question.json, json_text(machine, *files, advice, rows, chosen)));
    if (question.json != "-") print_text(machine, *files, advice, rows, chosen);
    return {};
}

} // namespace qccl::perf
