// Implements qccl-info plan: plans each tensor, and writes the plan file and a table.
#include "perf/tensor_plan_info.hpp"

#include "perf/machine_text.hpp"
#include "perf/number_text.hpp"
#include "perf/output_file.hpp"
#include "perf/tensor_list.hpp"

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <filesystem>

#include <CLI/CLI.hpp>

namespace qccl::perf {

// The error that most trainings tolerate; bounded_codecs explains its meaning.
static constexpr const char *usual_codec = "auto:nmse=1e-3";

void add_tensor_plan_options(CLI::App &app, const char *group, TensorPlanQuestion &question) {
    add_option(app, group, "--gradients",
               "the tensors: a text (name, count, type), a JSON, or a folder or pattern of .npy",
               take_text(question.gradients))
        ->required();
    add_option(app, group, "--out", "where the plan file goes (standard output)",
               take_text(question.out));
    add_option(app, group, "--codec", std::string("of what is compressed (") + usual_codec + ")",
               [&question](const std::string &text) -> Done {
                   QCCL_TRY(question.codec, parse_codec(text));
                   return {};
               });
    add_option(app, group, "--algo", "an algorithm for all of them (the fastest of each)",
               [&question](const std::string &text) -> Done {
                   QCCL_TRY(question.algorithm, parse_algorithm(text));
                   return {};
               });
    add_machine_options(app, group, question.machine);
}

template <class... Arguments>
static std::string line_of(const char *format, Arguments... arguments) {
    char line[512];
    std::snprintf(line, sizeof line, format, arguments...);
    return line;
}

static constexpr const char *columns = "%-32.200s %12s %-9s %-20s %5s  %-12s %10s %10s";

static std::string row_of(const NamedTensor &tensor, const TensorPlan &made) {
    const Partitioning &parts = made.partitioning;
    return line_of(columns, tensor.name.c_str(), std::to_string(tensor.count).c_str(),
                   name(tensor.type), spec(made.plan.codec).c_str(),
                   std::to_string(parts.best.parts).c_str(), spec(made.plan.algorithm).c_str(),
                   time_text(parts.best.time).c_str(), time_text(parts.lossless.time).c_str());
}

static std::vector<std::string> table_of(const TensorPlanQuestion &question, const Codec &codec,
                                         const Machine &machine,
                                         const std::vector<NamedTensor> &tensors,
                                         const std::vector<TensorPlan> &plans) {
    double planned = 0, lossless = 0;
    size_t compressed = 0;
    std::vector<std::string> lines{line_of("The sums of %.200s on %s, with %s",
                                           question.gradients.c_str(), describe(machine).c_str(),
                                           spec(codec).c_str()),
                                   "",
                                   line_of(columns, "tensor", "values", "type", "codec", "parts",
                                           "algorithm", "time", "lossless")};
    for (size_t i = 0; i < tensors.size(); i++) {
        lines.push_back(row_of(tensors[i], plans[i]));
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

Done print_tensor_plan(const TensorPlanQuestion &question) {
    QCCL_TRY(const Codec codec,
             question.codec ? Result<Codec>(*question.codec) : parse_codec(usual_codec));
    QCCL_TRY(const std::vector<NamedTensor> tensors, read_tensors(question.gradients));
    QCCL_TRY(const Machine machine, known_machine(question.machine));
    TensorPlanner planner({.ranks = machine.ranks, .codec = codec, .places = machine.places.get()},
                          inputs_of(machine), question.algorithm);
    QCCL_TRY(const std::vector<TensorPlan> plans, plan_all(tensors, planner));
    const PlanFile file =
        plan_file_of(tensors, plans, machine.ranks, static_cast<uint32_t>(machine.hosts()));
    std::string table, comments;
    for (const std::string &line : table_of(question, codec, machine, tensors, plans)) {
        table.append(line).append("\n");
        comments.append(line.empty() ? "#" : "# ").append(line).append("\n");
    }
    const std::string out = question.out.empty() ? "-" : question.out;
    QCCL_TRY(write_file(out, comments + print(file)));
    if (out == "-") return {};
    std::error_code unknown; // wherever the job starts
    const std::filesystem::path path = std::filesystem::absolute(out, unknown);
    std::printf("%s\nexport QCCL_PLAN_FILE=%s\n", table.c_str(),
                unknown ? out.c_str() : path.c_str());
    return {};
}

} // namespace qccl::perf
