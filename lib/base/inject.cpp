#include "base/inject.hpp"

#include "base/quantity.hpp"

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
        rules.push_back(rule);
    }
    return rules;
}

} // namespace qccl
