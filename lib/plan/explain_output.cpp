// Prints an explanation as text for people, and as JSON for programs. Times in the JSON are in us,
// as in all JSON of QCCL; unknown values are null.

#include "base/text.hpp"
#include "codec/error_model.hpp"
#include "plan/explain.hpp"

#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>

namespace qccl {

// ---- Text

namespace {

// Tells the user how to make the rate known.
constexpr const char *unknown_rate =
    "the rate between hosts is unknown, so that no gain of a codec can be predicted; "
    "`qccl-perf calibrate` measures it, QCCL_LINK_RATE says it, and min=0 in the codec asks for it "
    "all the same";

void add_head(std::string &text, const Explanation &all) {
    const Problem &problem = all.problem;
    if (problem.collective == Collective::barrier)
        return append_format(text, "barrier on %u %s\n", problem.ranks,
                             problem.ranks == 1 ? "rank" : "ranks");
    append_format(text, "%s of %llu %s%s (%s) on %u %s with %s\n", all.call_name(),
                  static_cast<unsigned long long>(problem.count), name(problem.type),
                  has_part_per_rank(problem.collective) ? " for each rank" : "",
                  print_bytes(vector_bytes(problem)).c_str(), problem.ranks,
                  problem.ranks == 1 ? "rank" : "ranks", spec(problem.codec).c_str());
}

// Says why a codec that the caller names is not used.
std::string why_dropped(const Problem &problem, const CostModel &speeds) {
    std::string text;
    if (problem.codec.min_bytes)
        append_format(text, "smaller than the codec's %s",
                      print_bytes(*problem.codec.min_bytes).c_str());
    else if (!speeds.is_remote_rate_known())
        text = unknown_rate;
    else
        append_format(text, "the codec would not make it %.3g times as fast",
                      least_gain_of(problem.codec));
    return text;
}

std::string text_of(const Problem &problem, const BudgetChoice &choice) {
    const Plan &plan = choice.plan;
    std::string text;
    switch (choice.outcome) {
    case BudgetChoice::Outcome::codec:
        append_format(text, " (%.4g bits a value): %s", bits_per_value(plan.codec, problem.type),
                      problem.codec.budget.nmse == 0 ? "the most accurate within the bits"
                                                     : "the fastest that keeps the error");
        break;
    case BudgetChoice::Outcome::no_gain:
        append_format(text, ": no codec within the budget would make it %.3g times as fast",
                      least_gain);
        break;
    case BudgetChoice::Outcome::no_link:
        text = ": between ranks of one host, or reproducible ones, no slow link is known that a "
               "codec would relieve; min=0 asks for one all the same";
        break;
    case BudgetChoice::Outcome::unknown_link: append_format(text, ": %s", unknown_rate); break;
    case BudgetChoice::Outcome::too_small:
        append_format(text, ": smaller than the codec's %s",
                      print_bytes(*problem.codec.min_bytes).c_str());
        break;
    case BudgetChoice::Outcome::fits:
        append_format(text, ": values as they are take no more than %.4g bits",
                      problem.codec.budget.most_bits());
        break;
    case BudgetChoice::Outcome::missed: text = ": " + missed_budget(choice, problem); break;
    }
    return text;
}

// Adds a line such as " int4, 4.5 bits a value: NMSE up to 0.049 by direct, too much".
void add_option(std::string &text, const BudgetOption &option, const Budget &budget) {
    append_format(text, "    %s, %.4g bits a value: ", spec(option.codec).c_str(), option.bits);
    if (budget.nmse == 0)
        append_format(text, "NMSE of one encode at most %.2g%s\n", *option.nmse,
                      option.keeps ? ", the least" : "");
    else if (!option.plan)
        text += "cannot be\n";
    else if (!option.nmse)
        append_format(text, "encoded too often by %s for a bound\n",
                      spec(option.plan->algorithm).c_str());
    else if (option.keeps)
        append_format(text, "NMSE at most %.2g by %s, %s\n", *option.nmse,
                      spec(option.plan->algorithm).c_str(),
                      print_time(option.plan->cost.time_ns).c_str());
    else
        append_format(text, "NMSE up to %.2g by %s, too much\n", *option.nmse,
                      spec(option.plan->algorithm).c_str());
}

// Returns a list such as "2, 2 and 3".
std::string print_sizes(const Partition &hosts) {
    constexpr size_t most_shown = 8;
    std::string text;
    for (size_t i = 0; i < hosts.groups() && i < most_shown; i++) {
        if (i != 0) text += i + 1 == hosts.groups() ? " and " : ", ";
        text += std::to_string(hosts.ranks(i).size());
    }
    return hosts.groups() > most_shown ? text + ", ..." : text;
}

// Adds lines such as "2 nodes with 3 and 2 ranks": the tiers of hierarchies beside hosts.
void add_tiers(std::string &text, const RankTopology &places) {
    for (const Partition &tier : places.tiers()) {
        if (tier == places.hosts()) continue;
        const bool is_finer = tier.groups() > places.hosts().groups();
        append_format(text, "  %zu %s with %s ranks\n", tier.groups(), is_finer ? "nodes" : "racks",
                      print_sizes(tier).c_str());
    }
}

void add_ring(std::string &text, std::span<const uint32_t> ring) {
    constexpr size_t most_shown = 64;
    for (size_t i = 0; i < ring.size() && i < most_shown; i++)
        text.append(" ").append(std::to_string(ring[i]));
    text += ring.size() > most_shown ? " ...\n" : "\n";
}

void add_hosts(std::string &text, const Partition &hosts, const PlannerInputs &inputs) {
    const CostModel &speeds = inputs.speeds;
    append_format(
        text, "  %zu hosts with %s ranks; between them %s, and %s%.4g GB/s for all of a host%s",
        hosts.groups(), print_sizes(hosts).c_str(),
        print_time(speeds.remote_link().latency_ns).c_str(),
        speeds.is_remote_rate_known() ? "" : "an unknown rate, taken for ",
        speeds.remote_bytes_per_ns,
        speeds.remote_rate_source == RateSource::stated ? ", stated and not measured" : "");
    if (const RackLines *const lines = inputs.links.racks.get())
        append_format(text, "; %.4g GB/s for all of a rack", *lines->slowest_bytes_per_ns());
    text += "\n";
}

void add_places(std::string &text, const Explanation &all) {
    const RankTopology *const places = all.problem.places;
    if (!places) return;
    if (all.problem.has_hosts()) add_hosts(text, places->hosts(), all.inputs);
    add_tiers(text, *places);
    for (uint32_t number = 0; number < places->rings(); number++) {
        text += number == 0 ? "  rings go by" : "  rings=all also by";
        add_ring(text, places->ring(number));
    }
}

// Adds a list such as "; all together 6 MiB by tcp, 3 MiB by nvlink".
void add_link_bytes(std::string &text, const LinkBytes &bytes) {
    std::string list;
    for (size_t of_class = link_classes; of_class-- > 0;) {
        if (bytes[of_class] == 0) continue;
        list.append(list.empty() ? "" : ", ").append(print_bytes(bytes[of_class])).append(" by ");
        list.append(name(static_cast<LinkClass>(of_class)));
    }
    if (!list.empty()) text.append("; all together ").append(list);
}

void add_error(std::string &text, const Plan &plan, DataType type,
               const std::optional<double> &expected) {
    if (plan.cost.noise.first != 0) append_format(text, "; NMSE %.4g", predicted_nmse(plan, type));
    if (plan.cost.noise.first != 0 && expected)
        append_format(text, ", by the sample %.4g", *expected);
    if (const auto most = nmse_bound(plan); most && *most != 0)
        append_format(text, ", at most %.2g", *most);
}

void add_verdict(std::string &text, const ExplainedCandidate &candidate) {
    if (candidate.status == CandidateStatus::refused)
        text.append("; not by itself: ").append(candidate.why);
    else if (candidate.status == CandidateStatus::lost)
        text.append("; ").append(candidate.why);
}

bool is_bound_by_racks(const Cost &cost) {
    return cost.rack_ns > 0 && cost.rack_ns >= cost.wire_ns;
}

void add_candidate(std::string &text, const ExplainedCandidate &candidate, const Explanation &all) {
    const Problem &problem = all.planned;
    const Plan &plan = candidate.plan;
    const Cost &cost = plan.cost;
    append_format(text, "%c %-17s", candidate.status == CandidateStatus::chosen ? '*' : ' ',
                  spec(plan.algorithm).c_str());
    if (candidate.status == CandidateStatus::impossible) {
        text.append(" cannot be: ").append(candidate.why).append("\n");
        return;
    }
    append_format(
        text, " %9s: %s in %u %s and messages, %s computing, %s on the %s;",
        print_time(cost.time_ns).c_str(), print_time(cost.latency_ns + cost.messages_ns).c_str(),
        cost.rounds, cost.rounds == 1 ? "round" : "rounds", print_time(cost.compute_ns).c_str(),
        print_time(cost.wire_ns).c_str(), is_bound_by_racks(cost) ? "line of a rack" : "wire");
    if (cost.correction != 1)
        append_format(text, " measured to take %.3g of what is counted;", cost.correction);
    append_format(text, " sends %s; %llu %s in %u %s", print_bytes(cost.wire_bytes).c_str(),
                  static_cast<unsigned long long>(plan.geometry.instances),
                  plan.geometry.instances == 1 ? "segment" : "segments", plan.geometry.lanes,
                  plan.geometry.lanes == 1 ? "lane" : "lanes");
    if (cost.host_bytes != 0)
        append_format(text, "; %s leave a host", print_bytes(cost.host_bytes).c_str());
    if (candidate.link_bytes) add_link_bytes(text, *candidate.link_bytes);
    if (!plan.codec.is_lossless() && plan.algorithm.row().inner_noise && problem.places)
        append_format(text, "; %s below the outermost tier", spec(plan.inner_codec).c_str());
    add_error(text, plan, problem.type, all.expected_of(candidate));
    add_verdict(text, candidate);
    text += "\n";
}

} // namespace

std::optional<double> Explanation::expected_of(const ExplainedCandidate &candidate) const {
    if (candidate.status == CandidateStatus::impossible) return std::nullopt;
    if (candidate.expected_nmse || !sample) return candidate.expected_nmse;
    return expected_nmse(encode_counts(candidate.plan, problem.collective), *sample);
}

std::string Explanation::codec_reason() const {
    if (problem.codec.is_auto())
        return "travels with " + spec(chosen().codec) + text_of(problem, choice);
    if (chosen().codec.shares_scales())
        return "travels as integers with " + spec(chosen().codec.without_use()) +
               "; the agreement on the scales before is not counted";
    if (!chosen().codec.is_lossless() || problem.codec.is_lossless()) return {};
    return "travels with none: " + why_dropped(problem, inputs.speeds);
}

std::string print_text(const Explanation &all, bool shows_places) {
    std::string text = all.rules;
    if (!all.transport.empty()) text.append("over ").append(all.transport).append("\n");
    add_head(text, all);
    if (const std::string reason = all.codec_reason(); !reason.empty())
        text.append("  ").append(reason).append("\n");
    for (const BudgetOption &option : all.choice.options)
        add_option(text, option, all.problem.codec.budget);
    if (all.inputs.is_reproducible)
        text +=
            "  reproducible: chosen by fixed speeds, wherever the ranks are; rings go by rank\n";
    else if (shows_places)
        add_places(text, all);
    if (all.inputs.speeds.shares_cores())
        append_format(text, "  %.3g ranks share a core\n", all.inputs.speeds.ranks_per_core);
    if (!all.has_usual_cut())
        text += "  cut as settings or the plan say; times and bytes are of the usual cut, by which "
                "algorithms are chosen\n";
    for (const ExplainedCandidate &candidate : all.candidates) add_candidate(text, candidate, all);
    return text + all.reason() + "\n";
}

// ---- JSON

namespace {

using Json = nlohmann::ordered_json;

constexpr double ns_per_us = 1e3;

Json or_null(const std::optional<double> &value) {
    return value && std::isfinite(*value) ? Json(*value) : Json(nullptr);
}

const char *word(CandidateStatus status) {
    switch (status) {
    case CandidateStatus::chosen: return "chosen";
    case CandidateStatus::lost: return "lost";
    case CandidateStatus::refused: return "refused";
    case CandidateStatus::impossible: break;
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

Json json_of(const ExplainedCandidate &candidate, DataType type,
             const std::optional<double> &expected) {
    const Plan &plan = candidate.plan;
    const Cost &cost = plan.cost;
    Json json = {{"algorithm", spec(plan.algorithm)},
                 {"verdict", word(candidate.status)},
                 {"why", candidate.why}};
    if (candidate.status == CandidateStatus::impossible) return json;
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
    if (expected) json["nmse_expected"] = *expected;
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
        speeds.is_remote_rate_known() ? counted(speeds.remote_bytes_per_ns) : Json(nullptr);
    json["host_rate_source"] = counted(name(speeds.remote_rate_source));
    if (const RackLines *const lines = all.inputs.links.racks.get())
        json["rack_GBps"] = *lines->slowest_bytes_per_ns();
    json["host_latency_us"] = counted(speeds.remote_link().latency_ns / ns_per_us);
    return json;
}

} // namespace

std::string print_json(const Explanation &all) {
    const Problem &problem = all.problem;
    const Plan &plan = all.chosen();
    Json candidates = Json::array(), options = Json::array();
    for (const ExplainedCandidate &candidate : all.candidates)
        candidates.push_back(json_of(candidate, problem.type, all.expected_of(candidate)));
    for (const BudgetOption &option : all.choice.options) options.push_back(json_of(option));
    Json json = {{"version", explain_json_version},
                 {"collective", all.call_name()},
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
