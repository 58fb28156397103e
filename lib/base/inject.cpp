// Parses the rules of QCCL_INJECT and finds those without effect.
#include "base/inject.hpp"

#include "base/parse_units.hpp"

#include <algorithm>

namespace qccl {

static std::string_view next_part(std::string_view &text, char separator) {
    const size_t end = text.find(separator);
    const std::string_view part = text.substr(0, end);
    text = end == std::string_view::npos ? std::string_view() : text.substr(end + 1);
    return part;
}

static bool take_part(std::string_view part, InjectRule &rule, bool &has_fault) {
    const size_t equals = part.find('=');
    const std::string_view key = part.substr(0, equals);
    const std::string_view value =
        equals == std::string_view::npos ? std::string_view() : part.substr(equals + 1);
    if (key == "rank" || key == "call") {
        const std::optional<uint64_t> number = parse_count(value);
        if (!number) return false;
        if (key == "call") {
            if (rule.call) return false;
            rule.call = *number;
            return true;
        }
        if (rule.rank || *number > INT32_MAX) return false;
        rule.rank = static_cast<uint32_t>(*number);
        return true;
    }

    if (has_fault) return false;
    has_fault = true;
    if (key == "delay") {
        const auto delay = parse_duration(value);
        rule.fault = Fault::delay;
        rule.delay = delay.value_or(std::chrono::nanoseconds());
        return delay.has_value();
    }
    rule.fault = part == "kill" ? Fault::kill : Fault::revoke;
    return part == "kill" || part == "revoke";
}

Result<std::vector<InjectRule>> parse_inject(std::string_view text) {
    std::vector<InjectRule> rules;
    while (!text.empty()) {
        const std::string_view whole = next_part(text, ';');
        if (whole.empty()) continue;
        InjectRule rule;
        bool has_fault = false;
        bool is_sound = true;
        for (std::string_view rest = whole; is_sound && !rest.empty();)
            is_sound = take_part(next_part(rest, ','), rule, has_fault);
        if (!is_sound || !has_fault)
            return Error::make(
                Code::invalid_argument,
                "\"%.*s\" is not a rule: expected [rank=N,][call=N,] and one of kill, "
                "delay=TIME (5s, 20ms) and revoke; rules are separated by ';'",
                static_cast<int>(std::min<size_t>(whole.size(), 80)), whole.data());
        rule.text = whole;
        rules.push_back(std::move(rule));
    }
    return rules;
}

static uint64_t first_call(const InjectRule &rule) { return rule.call.value_or(1); }

// Whether `rule` ends the calls of every rank that `other` names before `other` takes effect.
// `comes_first`: `rule` stands before `other` in the list.
static bool ends(const InjectRule &rule, const InjectRule &other, bool comes_first) {
    const bool is_felt_by_all = !rule.rank || rule.rank == other.rank;
    if (rule.fault == Fault::delay || !is_felt_by_all || rule.call == uint64_t{0}) return false;
    if (first_call(rule) != first_call(other)) return first_call(rule) < first_call(other);
    return rule.fault == Fault::kill && comes_first;
}

std::vector<std::string> futile_rules(std::span<const InjectRule> rules, uint32_t ranks) {
    std::vector<std::string> sentences;
    for (const InjectRule &rule : rules) {
        std::string reason;
        const auto end = std::find_if(rules.begin(), rules.end(), [&](const InjectRule &other) {
            return &other != &rule && ends(other, rule, &other < &rule);
        });
        if (rule.rank && *rule.rank >= ranks)
            reason = "the ranks are 0 to " + std::to_string(ranks - 1);
        else if (rule.call == uint64_t{0})
            reason = "calls count from 1";
        else if (rule.fault == Fault::delay && rule.delay.count() == 0)
            reason = "a delay of 0 is none";
        else if (end != rules.end())
            reason = "\"" + end->text + "\" ends all calls before";
        else
            continue;
        sentences.push_back("QCCL_INJECT: \"" + rule.text + "\" does nothing: " + reason);
    }
    return sentences;
}

} // namespace qccl
