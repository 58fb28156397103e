// Parser and printer of plan files. A policy goes through the sources in order of precedence, and
// words the reasons for explanations.
#include "plan/call_policy.hpp"

#include "base/settings.hpp"
#include "base/text.hpp"
#include "codec/shared_scales.hpp"

#include <algorithm>
#include <optional>
#include <vector>

namespace qccl {

// ---- Plan files

namespace {

constexpr std::string_view plan_title = "qccl-plan";

// A key whose value is a number from 1 on.
struct NumberKey {
    std::string_view name;
    uint64_t most;
    uint64_t value = 0; // 0: not given
};

Done read_numbers(std::span<const std::string_view> words, std::span<NumberKey> keys) {
    for (const std::string_view word : words) {
        const Parted item = parted_at(word, '=');
        const auto key = std::ranges::find_if(
            keys, [&](const NumberKey &row) { return row.name == item.before; });
        if (key == keys.end()) {
            Names possible;
            for (const NumberKey &row : keys) possible.push_back(row.name);
            return no_choice("key", excerpt(item.before), possible);
        }
        if (key->value != 0) return invalid_argument("%s is given twice", key->name.data());
        const auto number = parse_count(item.behind);
        if (!number || *number == 0 || *number > key->most)
            return invalid_argument("\"%s\": expected %s= and a number from 1 to %llu",
                                    excerpt(word).c_str(), key->name.data(),
                                    static_cast<unsigned long long>(key->most));
        key->value = *number;
    }
    return {};
}

// A key of a rule.
struct WishKey {
    std::string_view name;
    Done (*store)(Rule &rule, std::string_view value);
};

Done store_codec(Rule &rule, std::string_view value) {
    QCCL_TRY(rule.codec, parse_codec(value));
    return {};
}

Done store_algorithm(Rule &rule, std::string_view value) {
    rule.algorithm = Algorithm();
    if (value == "auto") return {};
    QCCL_TRY(rule.algorithm, parse_algorithm(value, "algorithm", {"auto"}));
    return {};
}

Done store_segment(Rule &rule, std::string_view value) {
    const auto bytes = parse_bytes(value);
    if (!bytes || *bytes == 0)
        return invalid_argument("segment is \"%s\"; expected a size above 0 such as 256K",
                                excerpt(value).c_str());
    rule.pieces.segment_bytes = *bytes;
    return {};
}

template <auto field> Done store_number(Rule &rule, std::string_view value) {
    const auto number = parse_count(value);
    if (!number || *number == 0 || *number > UINT32_MAX)
        return invalid_argument("\"%s\" is no number from 1 to %u", excerpt(value).c_str(),
                                UINT32_MAX);
    rule.pieces.*field = static_cast<uint32_t>(*number);
    return {};
}

constexpr WishKey wish_keys[] = {
    {"codec", store_codec},
    {"algorithm", store_algorithm},
    {"segment", store_segment},
    {"parts", store_number<&Pieces::parts>},
    {"lanes", store_number<&Pieces::lanes>},
};

Done parse_rule_choices(std::string_view text, Rule &rule) {
    std::vector<std::string_view> given;
    for (const std::string_view word : words_of(text)) {
        const Parted item = parted_at(word, '=');
        const auto *key = std::find_if(std::begin(wish_keys), std::end(wish_keys),
                                       [&](const WishKey &row) { return row.name == item.before; });
        if (key == std::end(wish_keys))
            return no_choice("key", excerpt(item.before), names_of(wish_keys));
        if (std::ranges::find(given, item.before) != given.end())
            return invalid_argument("%s is given twice", key->name.data());
        given.push_back(item.before);
        QCCL_TRY(key->store(rule, item.behind));
    }
    if (given.empty())
        return invalid_argument("it wants nothing; possible are %s",
                                listed(names_of(wish_keys)).c_str());
    if (rule.pieces.segment_bytes != 0 && rule.pieces.parts != 0)
        return invalid_argument("segment and parts are both there; one of them is enough");
    return {};
}

Done read_rule(std::string_view line, Rule &rule) {
    const Parted parts = parted_at(line, '@');
    QCCL_TRY(parse_rule_choices(parts.before, rule));
    if (parts.is_marked) {
        QCCL_TRY(rule.selector, parse_selector(parts.behind));
    }
    if (rule.codec) QCCL_TRY(check_reach(*rule.codec, rule.selector));
    if (rule.algorithm) return check_has(*rule.algorithm, rule.selector);
    return {};
}

class PolicyReader {
public:
    Done take(std::string_view line, uint32_t number) {
        const auto words = words_of(line);
        if (!has_title_) return take_title(line, words);
        const bool is_job = words.front() == "job";
        if (is_job && (has_job_ || !rules_.empty()))
            return invalid_argument("the line job stands once, before all rules");
        if (is_job) return take_job(words);
        Rule rule;
        rule.number = number;
        rule.text = line;
        QCCL_TRY(read_rule(line, rule));
        rules_.push_back(std::move(rule));
        return {};
    }

    Result<PlanFile> finish() {
        if (!has_title_)
            return invalid_argument("it is empty; the first line is \"qccl-plan version=1\"");
        if (promised_ != 0 && promised_ != rules_.size())
            return invalid_argument("it is damaged: it has %zu rules, and its first line says %llu",
                                    rules_.size(), static_cast<unsigned long long>(promised_));
        plan_.rules = Rules(std::move(rules_));
        return std::move(plan_);
    }

private:
    Done take_title(std::string_view line, std::span<const std::string_view> words) {
        if (words.front() != plan_title)
            return invalid_argument("it is no plan file: it begins with \"%s\", not with "
                                    "\"qccl-plan version=1\"",
                                    excerpt(line).c_str());
        NumberKey keys[] = {{"version", UINT32_MAX}, {"rules", UINT32_MAX}};
        // A newer version may have other keys, so the version is checked before them.
        const auto newer = std::ranges::find_if(words, [](std::string_view word) {
            const auto version = parse_count(parted_at(word, '=').behind);
            return word.starts_with("version=") && version && *version > newest_plan_version;
        });
        if (newer != words.end())
            return invalid_argument("it has %s, and this library reads version 1",
                                    excerpt(*newer).c_str());
        QCCL_TRY(read_numbers(words.subspan(1), keys));
        if (keys[0].value == 0)
            return invalid_argument("the first line has no version; write \"qccl-plan version=1\"");
        promised_ = keys[1].value;
        has_title_ = true;
        return {};
    }

    Done take_job(std::span<const std::string_view> words) {
        NumberKey keys[] = {{"ranks", UINT32_MAX}, {"nodes", UINT32_MAX}};
        QCCL_TRY(read_numbers(words.subspan(1), keys));
        has_job_ = true;
        plan_.ranks = static_cast<uint32_t>(keys[0].value);
        plan_.hosts = static_cast<uint32_t>(keys[1].value);
        return {};
    }

    PlanFile plan_;
    std::vector<Rule> rules_;
    uint64_t promised_ = 0;
    bool has_title_ = false, has_job_ = false;
};

std::string job_text(uint32_t ranks, uint32_t hosts) {
    std::string text;
    if (ranks != 0) text += std::to_string(ranks) + (ranks == 1 ? " rank" : " ranks");
    if (hosts == 0) return text;
    return text + (text.empty() ? "" : " on ") + std::to_string(hosts) +
           (hosts == 1 ? " node" : " nodes");
}

} // namespace

Result<PlanFile> parse_plan_file(std::string_view text) {
    PolicyReader reader;
    QCCL_TRY(read_lines(
        text, [&](std::string_view line, uint32_t number) { return reader.take(line, number); }));
    return reader.finish();
}

std::string print(const PlanFile &plan) {
    const auto rules = plan.rules.all();
    std::string text(plan_title);
    text += " version=" + std::to_string(newest_plan_version);
    if (!rules.empty()) text += " rules=" + std::to_string(rules.size());
    text += "\n";
    if (plan.ranks != 0 || plan.hosts != 0) text += "job";
    if (plan.ranks != 0) text += " ranks=" + std::to_string(plan.ranks);
    if (plan.hosts != 0) text += " nodes=" + std::to_string(plan.hosts);
    if (plan.ranks != 0 || plan.hosts != 0) text += "\n";
    for (const Rule &rule : rules) text += spec(rule) + "\n";
    return text;
}

Done check_job(const PlanFile &plan, uint32_t ranks, uint32_t hosts) {
    const bool is_ours =
        (plan.ranks == 0 || plan.ranks == ranks) && (plan.hosts == 0 || plan.hosts == hosts);
    if (is_ours) return {};
    return invalid_argument(
        "it is the plan of another job: of %s, and this communicator has %s; a plan "
        "without the line job serves all, with conditions such as ranks=%u",
        job_text(plan.ranks, plan.hosts).c_str(), job_text(ranks, hosts).c_str(), ranks);
}

// ---- Policies

namespace {

CodecChoice unless_impossible(const CallPolicy &policy, const Codec &codec,
                              const CallTraits &call) {
    if (const Done done = policy.check(codec, call); !done) return {{}, done.error()};
    return {codec, {}};
}

// Whether QCCL_CODEC and plan files may set the call's codec. A program that is unaware of codecs
// must not lose anything where it does not sum.
bool is_open_to_environment(const CallTraits &call) {
    return info(call.type).is_float && adds(call.op);
}

CodecChoice by_rule(const CallPolicy &policy, const Rule &rule, const CallTraits &call) {
    if (is_open_to_environment(call) || rule.codec->keeps_type()) {
        CodecChoice choice = unless_impossible(policy, *rule.codec, call);
        choice.rule = &rule;
        return choice;
    }
    return {{},
            invalid_argument("codec %s of %s: reaches sum and avg of floating point, not %s of %s",
                             spec(*rule.codec).c_str(), rule.source->setting, name(call.op),
                             name(call.type)),
            nullptr};
}

Result<PlanFile> read_plan(const std::string &path, const ReadFile &read) {
    QCCL_TRY(const std::string text, read(path));
    return parse_plan_file(text);
}

bool ask_for_no_codec(const Rules &rules) {
    return std::ranges::all_of(rules.all(),
                               [](const Rule &rule) { return *rule.codec == Codec(); });
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
    if (!policy.plan && ask_for_no_codec(policy.codecs)) policy.codecs = {};
    policy.has_segment = settings.segment_bytes.has_value();
    policy.has_lanes = settings.lanes.has_value();
    return policy;
}

Done CallPolicy::check_shared(const Codec &asked) const {
    if (most_shared_sum(asked, ranks) <= largest_exact_sum) return {};
    return invalid_argument("codec %s: sums of the integers of %u ranks may need more than the 24 "
                            "bits in which they are exact",
                            spec(asked).c_str(), ranks);
}

Done CallPolicy::check(const Codec &asked, const CallTraits &call) const {
    QCCL_TRY(check_codec(asked, call.collective, call.type, call.op));
    if (asked.shares_scales()) return check_shared(asked);
    if (!asked.sums_exactly || !most_exact_ranks || ranks <= *most_exact_ranks) return {};
    return invalid_argument("codec exact: GPUs sum the values of up to %u ranks, and the "
                            "communicator has %u",
                            *most_exact_ranks, ranks);
}

Result<CodecChoice> CallPolicy::choose_codec(const Codec *of_call, const CallTraits &call) const {
    if (of_call) {
        QCCL_TRY(check(*of_call, call));
        return CodecChoice{*of_call, {}};
    }
    if (!reduces(call.collective)) return CodecChoice{};
    if (codec) return unless_impossible(*this, *codec, call);
    if (const Rule *const rule = codecs.find_codec(call)) return by_rule(*this, *rule, call);
    if (const Rule *const rule = plan ? plan->rules.find_codec(call) : nullptr)
        return by_rule(*this, *rule, call);
    return CodecChoice{};
}

AlgorithmChoice CallPolicy::choose_algorithm(const CallTraits &call,
                                             std::optional<Collective> v_form) const {
    const Collective called = v_form.value_or(call.collective);
    if (algorithm) return {algorithm.has(called) ? algorithm : Algorithm()};
    const Rule *rule = algorithms.find_algorithm(call);
    if (!rule && plan) rule = plan->rules.find_algorithm(call);
    if (!rule || (*rule->algorithm && !rule->algorithm->has(called))) return {};
    return {*rule->algorithm, rule};
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
                                      const CallTraits &call,
                                      std::optional<Collective> v_form) const {
    QCCL_TRY(const CodecChoice coded, choose_codec(of_call, call));
    const bool is_codec_ours = !of_call && codec && reduces(call.collective);
    CallChoice choice{.codec = coded.codec, .algorithm = {}, .pieces = {}, .reasons = {}};
    if (coded.passed_over)
        choice.reasons = coded.notice() + "\n";
    else
        choice.reasons = reason("codec " + spec(coded.codec), is_codec_ours, coded.rule);
    choice.algorithm = algorithm_of_call;
    if (!algorithm_of_call) {
        const AlgorithmChoice named = choose_algorithm(call, v_form);
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
