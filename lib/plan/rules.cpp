// Parses lists of items, and looks up the rule for a call.
#include "plan/rules.hpp"

#include "base/spec_text.hpp"

#include <algorithm>

namespace qccl {

namespace {

// Splits at ';' outside brackets.
std::vector<std::string_view> split_items(std::string_view text) {
    std::vector<std::string_view> items;
    size_t begin = 0;
    int depth = 0;
    for (size_t i = 0; i < text.size(); i++) {
        depth += text[i] == '(' || text[i] == '[';
        depth -= text[i] == ')' || text[i] == ']';
        if (text[i] != ';' || depth > 0) continue;
        items.push_back(trimmed(text.substr(begin, i - begin)));
        begin = i + 1;
    }
    const std::string_view last = trimmed(text.substr(begin));
    if (!last.empty() || items.empty()) items.push_back(last); // a ';' may stand at the end
    return items;
}

// Splits at the first '@' outside brackets.
Parted parted_at_conditions(std::string_view item) {
    int depth = 0;
    for (size_t i = 0; i < item.size(); i++) {
        depth += item[i] == '(' || item[i] == '[';
        depth -= item[i] == ')' || item[i] == ']';
        if (item[i] == '@' && depth <= 0)
            return {trimmed(item.substr(0, i)), item.substr(i + 1), true};
    }
    return {item, {}, false};
}

Done led_by(const std::string &who, const Done &done) {
    if (done) return {};
    return Error::make(Code::invalid_argument, "%s: %.400s", who.c_str(), done.error().text);
}

Done check_reached(const Rule &rule, const std::vector<Rule> &before) {
    if (rule.text.empty()) return Error::make(Code::invalid_argument, "it is empty");
    if (before.empty()) return {};
    const Rule &last = before.back();
    const bool takes_all = last.codec || !*last.algorithm; // an algorithm lacks some collectives
    if (!takes_all || !last.selector.is_unconditional()) return {};
    return Error::make(Code::invalid_argument,
                       "no call comes to \"%.100s\", because the item before it, \"%.100s\", "
                       "matches all",
                       rule.text.c_str(), last.text.c_str());
}

// Parses the items of a setting. `read` stores what the item names in the rule; its error begins
// with `who`. `check` tests whether the conditions suit the item.
template <class Read, class Check>
Result<Rules> parse_items(std::string_view text, const RuleSource &source, const Read &read,
                          const Check &check) {
    std::vector<Rule> rules;
    const auto items = split_items(text);
    for (const std::string_view item : items) {
        const Parted parts = parted_at_conditions(item);
        Rule rule;
        rule.source = &source;
        rule.number = static_cast<uint32_t>(rules.size() + 1);
        rule.text = item;
        std::string who = source.setting;
        if (items.size() > 1) who.append(": item ").append(std::to_string(rule.number));
        QCCL_TRY(led_by(who, check_reached(rule, rules)));
        if (parts.is_marked) {
            auto selector = parse_selector(parts.behind);
            QCCL_TRY(led_by(who, outcome(selector)));
            rule.selector = std::move(*selector);
        }
        QCCL_TRY(read(parts.before, who, rule));
        QCCL_TRY(led_by(who, check(rule)));
        rules.push_back(std::move(rule));
    }
    return Rules(std::move(rules));
}

} // namespace

std::string describe(const Rule &rule) {
    const bool is_all = rule.selector.is_unconditional() && rule.number == 1;
    if (is_all && rule.source != &plan_setting) return rule.source->setting;
    return std::string(rule.source->unit) + " " + std::to_string(rule.number) + " of " +
           rule.source->setting + ", \"" + rule.text + "\"";
}

Rules::Rules(std::vector<Rule> rules) : rules_(std::move(rules)) {
    for (uint32_t i = 0; i < rules_.size(); i++) {
        const NumberRange &count = rules_[i].selector.count;
        if (count.least == count.most)
            of_one_count_.emplace_back(count.least, i);
        else
            of_any_count_.push_back(i);
    }
    std::sort(of_one_count_.begin(), of_one_count_.end());
}

const Rule *Rules::find(const CallTraits &call, Says says) const {
    const auto suits = [&](uint32_t i) {
        return says(rules_[i], call) && rules_[i].selector.matches(call);
    };
    const Rule *found = nullptr;
    for (auto at = std::lower_bound(of_one_count_.begin(), of_one_count_.end(),
                                    std::pair(call.count, uint32_t{0}));
         !found && at != of_one_count_.end() && at->first == call.count; ++at)
        if (suits(at->second)) found = &rules_[at->second];
    for (const uint32_t i : of_any_count_) {
        if (found && &rules_[i] > found) break;
        if (suits(i)) return &rules_[i];
    }
    return found;
}

const Rule *Rules::find_codec(const CallTraits &call) const {
    return find(call, [](const Rule &rule, const CallTraits &) { return rule.codec.has_value(); });
}

const Rule *Rules::find_algorithm(const CallTraits &call) const {
    return find(call, [](const Rule &rule, const CallTraits &asked) {
        return rule.algorithm && (!*rule.algorithm || rule.algorithm->has(asked.collective));
    });
}

const Rule *Rules::find_pieces(const CallTraits &call) const {
    return find(call, [](const Rule &rule, const CallTraits &) { return rule.pieces != Pieces(); });
}

Rules Rules::of_communicator(const std::string &name) const {
    std::vector<Rule> matching;
    for (const Rule &rule : rules_) {
        if (!rule.selector.matches_name(name)) continue;
        matching.push_back(rule);
        matching.back().selector.comm.clear();
    }
    return Rules(std::move(matching));
}

std::string spec(const Rule &rule) {
    std::string text;
    const auto add = [&](const char *key, const std::string &value) {
        text.append(text.empty() ? "" : " ").append(key).append(value);
    };
    const bool is_item = rule.source != &plan_setting;
    if (rule.codec) add(is_item ? "" : "codec=", spec(*rule.codec));
    if (rule.algorithm)
        add(is_item ? "" : "algorithm=", *rule.algorithm ? spec(*rule.algorithm) : "auto");
    const Pieces &pieces = rule.pieces;
    if (pieces.segment_bytes != 0) add("segment=", std::to_string(pieces.segment_bytes));
    if (pieces.parts != 0) add("parts=", std::to_string(pieces.parts));
    if (pieces.lanes != 0) add("lanes=", std::to_string(pieces.lanes));
    const std::string conditions = spec(rule.selector);
    return conditions.empty() ? text : text + (is_item ? "@" : " @") + conditions;
}

std::string spec(const Rules &rules) {
    std::string text;
    for (const Rule &rule : rules.all()) text.append(text.empty() ? "" : ";").append(spec(rule));
    return text;
}

Done check_reach(const Codec &codec, const Selector &selector) {
    const bool sums = !selector.op || adds(*selector.op);
    const bool is_float = !selector.type || info(*selector.type).is_float;
    const bool reduces_values = !selector.collective || reduces(*selector.collective);
    if (codec.is_lossless() || (sums && is_float && reduces_values)) return {};
    return Error::make(Code::invalid_argument,
                       "codec %s can match no call: it reaches sum and avg of floating point in "
                       "all_reduce and reduce_scatter alone, not \"%.100s\"",
                       spec(codec).c_str(), spec(selector).c_str());
}

Done check_has(const Algorithm &algorithm, const Selector &selector) {
    if (!algorithm || !selector.collective || algorithm.has(*selector.collective)) return {};
    return Error::make(Code::invalid_argument, "%s can match no call: it has no %s",
                       spec(algorithm).c_str(), name(*selector.collective));
}

Result<Rules> parse_codec_rules(std::string_view text) {
    const auto read = [](std::string_view spec, const std::string &who, Rule &rule) -> Done {
        auto codec = parse_codec(spec);
        QCCL_TRY(led_by(who, outcome(codec)));
        rule.codec = *codec;
        return {};
    };
    return parse_items(text, codec_setting, read,
                       [](const Rule &rule) { return check_reach(*rule.codec, rule.selector); });
}

Result<Rules> parse_algorithm_rules(std::string_view text) {
    const auto read = [](std::string_view spec, const std::string &who, Rule &rule) -> Done {
        rule.algorithm = Algorithm();
        if (spec == "auto") return {};
        QCCL_TRY(rule.algorithm, parse_algorithm(spec, who, {"auto"}));
        return {};
    };
    return parse_items(text, algorithm_setting, read,
                       [](const Rule &rule) { return check_has(*rule.algorithm, rule.selector); });
}

} // namespace qccl
