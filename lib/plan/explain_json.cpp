// Prints an explanation as JSON. Times are in us, as in all JSON of QCCL; unknown values are null.
#include "plan/explain.hpp"

#include "codec/error_bound.hpp"

#include <cmath>

#include <nlohmann/json.hpp>

namespace qccl {

namespace {

using Json = nlohmann::ordered_json;

constexpr double ns_per_us = 1e3;

Json or_null(const std::optional<double> &value) {
    return value && std::isfinite(*value) ? Json(*value) : Json(nullptr);
}

const char *word(ExplainedCandidate::CandidateStatus status) {
    switch (status) {
    case ExplainedCandidate::CandidateStatus::chosen: return "chosen";
    case ExplainedCandidate::CandidateStatus::lost: return "lost";
    case ExplainedCandidate::CandidateStatus::refused: return "refused";
    case ExplainedCandidate::CandidateStatus::impossible: break;
    }
    return "impossible";
}

const char *word(BudgetChoice::Outcome outcome) {
    switch (outcome) {
    case BudgetChoice::Outcome::codec: return "codec";
    case BudgetChoice::Outcome::no_gain: return "no_gain";
    case BudgetChoice::Outcome::no_link: return "no_slow_link";
    case BudgetChoice::Outcome::unknown_link: return "unknown_rate";
    case BudgetChoice::Outcome::too_small: return "too_small";
    case BudgetChoice::Outcome::fits: return "fits";
    case BudgetChoice::Outcome::missed: break;
    }
    return "missed";
}

Json by_class(const std::optional<LinkBytes> &bytes) {
    if (!bytes) return nullptr;
    Json json = Json::object();
    for (size_t i = 0; i < link_classes; i++)
        if ((*bytes)[i] != 0) json[std::string(name(static_cast<LinkClass>(i)))] = (*bytes)[i];
    return json;
}

Json lines_of(const std::string &text) {
    Json lines = Json::array();
    for (size_t begin = 0, end = 0; (end = text.find('\n', begin)) != text.npos; begin = end + 1)
        lines.push_back(text.substr(begin, end - begin));
    return lines;
}

// Null for integers: no codec takes them, so there is no error to predict.
Json nmse_of(const Plan &plan, DataType type) {
    return info(type).is_float ? or_null(predicted_nmse(plan, type)) : Json(nullptr);
}

Json json_of(const ExplainedCandidate &candidate, DataType type) {
    const Plan &plan = candidate.plan;
    const Cost &cost = plan.cost;
    Json json = {{"algorithm", spec(plan.algorithm)},
                 {"verdict", word(candidate.status)},
                 {"why", candidate.why}};
    if (candidate.status == ExplainedCandidate::CandidateStatus::impossible) return json;
    json.update({{"codec", spec(plan.codec)},
                 {"inner_codec", spec(plan.inner_codec)},
                 {"time_us", cost.time_ns / ns_per_us},
                 {"correction", cost.correction},
                 {"parts_us",
                  {{"latency", cost.latency_ns / ns_per_us},
                   {"messages", cost.messages_ns / ns_per_us},
                   {"compute", cost.compute_ns / ns_per_us},
                   {"wire", cost.wire_ns / ns_per_us},
                   {"racks", cost.rack_ns / ns_per_us}}},
                 {"regret", or_null(candidate.regret)},
                 {"rounds", cost.rounds},
                 {"segments", plan.geometry.instances},
                 {"lanes", plan.geometry.lanes},
                 {"wire_bytes", cost.wire_bytes},
                 {"host_bytes", cost.host_bytes},
                 {"bytes_by_link", by_class(candidate.link_bytes)},
                 {"nmse_predicted", nmse_of(plan, type)},
                 {"nmse_bound", or_null(nmse_bound(plan))}});
    return json;
}

Json json_of(const BudgetOption &option) {
    Json json = {{"codec", spec(option.codec)},
                 {"bits", option.bits},
                 {"keeps", option.keeps},
                 {"nmse", or_null(option.nmse)}};
    if (option.plan)
        json.update({{"algorithm", spec(option.plan->algorithm)},
                     {"time_us", option.plan->cost.time_ns / ns_per_us}});
    return json;
}

Json machine_of(const Explanation &all) {
    const CostModel &speeds = all.inputs.speeds;
    Json json = {{"ranks", all.problem.ranks},
                 {"hosts", all.problem.places ? all.problem.places->hosts().groups() : 1},
                 {"rings", all.problem.places ? all.problem.places->rings() : 1},
                 {"ranks_per_core", speeds.ranks_per_core}};
    if (!all.problem.has_hosts()) return json;
    const bool counts = !all.inputs.is_reproducible;
    const auto counted = [&](const auto &value) { return counts ? Json(value) : Json(nullptr); };
    json["host_GBps"] =
        speeds.is_far_rate_known() ? counted(speeds.far_bytes_per_ns) : Json(nullptr);
    json["host_rate_source"] = counted(name(speeds.far_rate_source));
    if (const RackLines *const lines = all.inputs.links.racks.get())
        json["rack_GBps"] = *lines->slowest_bytes_per_ns();
    json["host_latency_us"] = counted(speeds.far_link().latency_ns / ns_per_us);
    return json;
}

} // namespace

std::string print_json(const Explanation &all) {
    const Problem &problem = all.problem;
    const Plan &plan = all.chosen();
    Json candidates = Json::array(), options = Json::array();
    for (const ExplainedCandidate &candidate : all.candidates)
        candidates.push_back(json_of(candidate, problem.type));
    for (const BudgetOption &option : all.choice.options) options.push_back(json_of(option));
    Json json = {{"version", explain_json_version},
                 {"collective", name(problem.collective)},
                 {"bytes", vector_bytes(problem)},
                 {"count", problem.count},
                 {"dtype", name(problem.type)},
                 {"ranks", problem.ranks},
                 {"root", problem.root},
                 {"codec", spec(problem.codec)},
                 {"used_codec", spec(plan.codec)},
                 {"algorithm", spec(plan.algorithm)},
                 {"time_us", plan.cost.time_ns / ns_per_us},
                 {"nmse_predicted", nmse_of(plan, problem.type)},
                 {"reason", all.reason()},
                 {"rules", lines_of(all.rules)},
                 {"transport", all.transport.empty() ? Json(nullptr) : Json(all.transport)},
                 {"reproducible", all.inputs.is_reproducible},
                 {"usual_cut", all.has_usual_cut()},
                 {"machine", machine_of(all)},
                 {"lossless", nullptr},
                 {"candidates", std::move(candidates)}};
    if (all.lossless)
        json["lossless"] = {{"algorithm", spec(all.lossless->algorithm)},
                            {"time_us", all.lossless->cost.time_ns / ns_per_us}};
    if (problem.codec.is_auto())
        json["budget"] = {{"outcome", word(all.choice.outcome)}, {"codecs", std::move(options)}};
    return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

} // namespace qccl
