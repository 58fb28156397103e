// Goes through the sources in order of precedence, and words the reasons for explanations.
#include "plan/call_policy.hpp"

#include "base/settings.hpp"

#include <algorithm>

namespace qccl {

namespace {

CodecChoice unless_impossible(const Codec &codec, const CallTraits &call) {
    if (const Done done = check_codec(codec, call.collective, call.type, call.op); !done)
        return {{}, done.error()};
    return {codec, {}};
}

// Whether QCCL_CODEC and plan files may set the call's codec. A program that is unaware of codecs
// must not lose anything where it does not sum.
bool is_open_to_environment(const CallTraits &call) {
    return info(call.type).is_float && adds(call.op);
}

CodecChoice by_rule(const Rule &rule, const CallTraits &call) {
    if (is_open_to_environment(call) || rule.codec->is_lossless()) {
        CodecChoice choice = unless_impossible(*rule.codec, call);
        choice.rule = &rule;
        return choice;
    }
    return {{},
            Error::make(Code::invalid_argument,
                        "codec %s of %s: reaches sum and avg of floating point, not %s of %s",
                        spec(*rule.codec).c_str(), rule.source->setting, name(call.op),
                        name(call.type)),
            nullptr};
}

Result<PlanFile> read_plan(const std::string &path, const ReadFile &read) {
    QCCL_TRY(const std::string text, read(path));
    return parse_plan_file(text);
}

bool are_all_lossless(const Rules &rules) {
    return std::ranges::all_of(rules.all(),
                               [](const Rule &rule) { return rule.codec->is_lossless(); });
}

} // namespace

Result<EnvRules> parse_env_rules(const Settings &settings, const ReadFile &read) {
    EnvRules rules;
    if (settings.is_set("QCCL_CODEC")) {
        QCCL_TRY(rules.codecs, parse_codec_rules(settings.codec));
    }
    if (settings.algorithm) {
        QCCL_TRY(rules.algorithms, parse_algorithm_rules(*settings.algorithm));
    }
    if (settings.plan_file.empty()) return rules;
    auto plan = read_plan(settings.plan_file, read);
    if (!plan)
        return Error::make(plan.error().code, "QCCL_PLAN_FILE: %.160s: %.300s",
                           settings.plan_file.c_str(), plan.error().text);
    rules.plan = std::move(*plan);
    return rules;
}

Done for_each_rule(const EnvRules &rules, const std::function<Done(const Rule &)> &each) {
    for (const Rules *const some :
         {&rules.codecs, &rules.algorithms, rules.plan ? &rules.plan->rules : nullptr})
        for (const Rule &rule : some ? some->all() : std::span<const Rule>()) QCCL_TRY(each(rule));
    return {};
}

CallPolicy policy_of(const EnvRules &rules, const Settings &settings, const std::string &name) {
    CallPolicy policy;
    policy.codecs = rules.codecs.of_communicator(name);
    policy.algorithms = rules.algorithms.of_communicator(name);
    policy.plan = rules.plan;
    if (policy.plan) policy.plan->rules = rules.plan->rules.of_communicator(name);
    // Without a plan file, rules that ask for no codec change nothing.
    if (!policy.plan && are_all_lossless(policy.codecs)) policy.codecs = {};
    policy.has_segment = settings.segment_bytes.has_value();
    policy.has_lanes = settings.lanes.has_value();
    return policy;
}

Result<CodecChoice> CallPolicy::choose_codec(const Codec *of_call, const CallTraits &call) const {
    if (of_call) {
        QCCL_TRY(check_codec(*of_call, call.collective, call.type, call.op));
        return CodecChoice{*of_call, {}};
    }
    if (!reduces(call.collective)) return CodecChoice{};
    if (codec) return unless_impossible(*codec, call);
    if (const Rule *const rule = codecs.find_codec(call)) return by_rule(*rule, call);
    if (const Rule *const rule = plan ? plan->rules.find_codec(call) : nullptr)
        return by_rule(*rule, call);
    return CodecChoice{};
}

AlgorithmChoice CallPolicy::choose_algorithm(const CallTraits &call) const {
    if (algorithm) return {algorithm.has(call.collective) ? algorithm : Algorithm()};
    if (const Rule *const rule = algorithms.find_algorithm(call)) return {*rule->algorithm, rule};
    if (const Rule *const rule = plan ? plan->rules.find_algorithm(call) : nullptr)
        return {*rule->algorithm, rule};
    return {};
}

Pieces CallPolicy::choose_pieces(const CallTraits &call, const Rule **rule) const {
    const Rule *const found = plan ? plan->rules.find_pieces(call) : nullptr;
    if (!found) return {};
    Pieces pieces = found->pieces;
    if (has_segment) pieces.segment_bytes = pieces.parts = 0;
    if (has_lanes) pieces.lanes = 0;
    if (rule && pieces != Pieces()) *rule = found;
    return pieces;
}

static std::string reason(const std::string &what, bool is_by_communicator, const Rule *rule) {
    if (!is_by_communicator && !rule) return "";
    return what + " by " + (rule ? describe(*rule) : "the communicator's config") + "\n";
}

Result<CallChoice> CallPolicy::choose(const Codec *of_call, const Algorithm &algorithm_of_call,
                                      const CallTraits &call) const {
    QCCL_TRY(const CodecChoice coded, choose_codec(of_call, call));
    const bool is_codec_ours = !of_call && codec && reduces(call.collective);
    CallChoice choice{.codec = coded.codec, .algorithm = {}, .pieces = {}, .reasons = {}};
    if (coded.passed_over)
        choice.reasons = coded.notice() + "\n";
    else
        choice.reasons = reason("codec " + spec(coded.codec), is_codec_ours, coded.rule);
    choice.algorithm = algorithm_of_call;
    if (!algorithm_of_call) {
        const AlgorithmChoice named = choose_algorithm(call);
        choice.algorithm = named.algorithm;
        const std::string text = named.algorithm ? spec(named.algorithm) : "auto";
        choice.reasons += reason("algorithm " + text, named.algorithm && !named.rule, named.rule);
    }
    const Rule *rule = nullptr;
    choice.pieces = choose_pieces(call, &rule);
    choice.reasons += reason("cut", false, rule);
    return choice;
}

std::string CallPolicy::codec_text() const {
    if (codec) return spec(*codec);
    return codecs.is_empty() ? "none" : spec(codecs) + " by QCCL_CODEC";
}

std::string CallPolicy::algorithm_text() const {
    if (algorithm) return spec(algorithm);
    return algorithms.is_empty() ? "auto" : spec(algorithms);
}

std::string CallPolicy::plan_text() const {
    std::string text = plan ? print(*plan) : "none";
    std::replace(text.begin(), text.end(), '\n', ';');
    return text;
}

} // namespace qccl
