// Parses, prints and tests conditions, parses lists of items, and looks up the rule for a call.
#include "plan/rules.hpp"

#include "base/text.hpp"

#include <algorithm>
#include <vector>

#include <fnmatch.h>

namespace qccl {

// ---- Selectors

namespace {

constexpr uint64_t most_ranks_of_job = 65536; // bootstrap refuses more

// A condition on a number.
struct RangeKey {
    std::string_view name;
    NumberRange Selector::*range;
    std::optional<uint64_t> (*parse)(std::string_view);
    const char *expected;
};
constexpr RangeKey range_keys[] = {
    {"count", &Selector::count, parse_bytes, "a number of elements such as 4096 or 64K"},
    {"bytes", &Selector::bytes, parse_bytes, "a size such as 64K or 1M"},
    {"ranks", &Selector::ranks, parse_count, "a number"},
    {"nodes", &Selector::hosts, parse_count, "a number"},
};

// A condition that names something.
struct NameKey {
    std::string_view name;
    bool (*store)(Selector &, std::string_view);
    Names (*possible)();
};

template <auto field, auto parse> bool store_name(Selector &selector, std::string_view text) {
    selector.*field = parse(text);
    return (selector.*field).has_value();
}

constexpr NameKey name_keys[] = {
    {"collective", store_name<&Selector::collective, parse_collective>,
     [] { return Names(collective_names.begin(), collective_names.end()); }},
    {"type", store_name<&Selector::type, parse_type>, [] { return names_of(type_table); }},
    {"op", store_name<&Selector::op, parse_op>,
     [] { return Names(op_names.begin(), op_names.end()); }},
};

// The parts of a condition such as "bytes>=1M".
struct Condition {
    std::string_view whole, key, relation, value;
};

Condition take_apart(std::string_view text) {
    const size_t at = std::min(text.find_first_of("<>="), text.size());
    const size_t width = text.substr(at).starts_with("<=") || text.substr(at).starts_with(">=")
                             ? 2
                             : std::min<size_t>(1, text.size() - at);
    return {text, trimmed(text.substr(0, at)), text.substr(at, width),
            trimmed(text.substr(at + width))};
}

Error refuse_key(std::string_view key) {
    if (key == "tag")
        return invalid_argument(
            "tag cannot be a condition: ranks may give one call different tags, and all "
            "ranks have to plan it alike");
    Names possible{"comm"};
    for (const NameKey &row : name_keys) possible.push_back(row.name);
    for (const RangeKey &row : range_keys) possible.push_back(row.name);
    return no_choice("condition", key, possible);
}

// A bound that no number meets leaves the range empty.
void narrow(NumberRange &range, std::string_view relation, uint64_t value) {
    const NumberRange nothing{1, 0};
    NumberRange other;
    if (relation == "<")
        other = value == 0 ? nothing : NumberRange{0, value - 1};
    else if (relation == ">")
        other = value == UINT64_MAX ? nothing : NumberRange{value + 1, UINT64_MAX};
    else
        other = {relation == "<=" ? 0 : value, relation == ">=" ? UINT64_MAX : value};
    range = {std::max(range.least, other.least), std::min(range.most, other.most)};
}

Done take_range(const RangeKey &row, const Condition &condition, Selector &selector) {
    const auto number = row.parse(condition.value);
    if (!number)
        return invalid_argument("\"%.*s\": expected %s behind %.*s%.*s",
                                static_cast<int>(condition.whole.size()), condition.whole.data(),
                                row.expected, static_cast<int>(row.name.size()), row.name.data(),
                                static_cast<int>(condition.relation.size()),
                                condition.relation.data());
    narrow(selector.*row.range, condition.relation, *number);
    return {};
}

Done take_name(const NameKey &row, const Condition &condition, Selector &selector) {
    if (row.store(selector, condition.value)) return {};
    return no_choice(row.name, condition.value, row.possible());
}

Done take_condition(const Condition &condition, std::vector<std::string_view> &names,
                    Selector &selector) {
    const auto is_named = [&](const auto &row) { return row.name == condition.key; };
    const auto *range = std::find_if(std::begin(range_keys), std::end(range_keys), is_named);
    const auto *name = std::find_if(std::begin(name_keys), std::end(name_keys), is_named);
    const bool is_range = range != std::end(range_keys), is_name = name != std::end(name_keys);
    const int width = static_cast<int>(condition.key.size());
    if (!is_range && !is_name && condition.key != "comm") return refuse_key(condition.key);
    if (condition.relation.empty() || condition.value.empty())
        return invalid_argument("%.*s has no value; write %.*s=VALUE", width, condition.key.data(),
                                width, condition.key.data());
    if (is_range) return take_range(*range, condition, selector);
    if (condition.relation != "=")
        return invalid_argument("%.*s takes = alone, not %.*s", width, condition.key.data(),
                                static_cast<int>(condition.relation.size()),
                                condition.relation.data());
    if (std::find(names.begin(), names.end(), condition.key) != names.end())
        return invalid_argument("%.*s is given twice", width, condition.key.data());
    names.push_back(condition.key);
    if (is_name) return take_name(*name, condition, selector);
    selector.comm = condition.value;
    return {};
}

// Returns what the conditions ask for but the collective does not have; null if there is nothing.
const char *lacking(const Selector &selector) {
    if (!selector.collective) return nullptr;
    if (selector.op && !reduces(*selector.collective)) return "op";
    if (row_of(*selector.collective).has_values) return nullptr;
    if (selector.type) return "type";
    return selector.count.least > 0 || selector.bytes.least > 0 ? "values" : nullptr;
}

Done check_possible(const Selector &selector, std::string_view text) {
    const int width = static_cast<int>(std::min<size_t>(text.size(), 120));
    if (const char *const what = lacking(selector))
        return invalid_argument("\"%.*s\" can match no call: %s has no %s", width, text.data(),
                                name(*selector.collective), what);
    for (const RangeKey &row : range_keys)
        if ((selector.*row.range).is_empty())
            return invalid_argument("\"%.*s\" can match no call: there is no such number of %s",
                                    width, text.data(), row.name.data());
    for (const auto &[what, range] :
         {std::pair("ranks", selector.ranks), std::pair("nodes", selector.hosts)})
        if (range.most == 0 || range.least > most_ranks_of_job)
            return invalid_argument("\"%.*s\" can match no call: a job has 1 to %u %s", width,
                                    text.data(), static_cast<unsigned>(most_ranks_of_job), what);
    if (selector.hosts.least > selector.ranks.most)
        return invalid_argument("\"%.*s\" can match no call: a node has at least one rank", width,
                                text.data());
    return {};
}

void add(std::string &text, std::string_view key, std::string_view relation,
         std::string_view value) {
    text.append(text.empty() ? "" : ",").append(key).append(relation).append(value);
}

} // namespace

std::string glob_of(std::string_view name) {
    std::string glob;
    for (const char letter : name) {
        const bool ends_a_word = static_cast<unsigned char>(letter) <= ' ' || letter == 0x7F ||
                                 std::string_view(",;@").find(letter) != std::string_view::npos;
        if (std::string_view("*?[\\").find(letter) != std::string_view::npos) glob += '\\';
        glob += ends_a_word ? '?' : letter;
    }
    return glob;
}

bool Selector::matches_name(const std::string &communicator) const {
    return comm.empty() || fnmatch(comm.c_str(), communicator.c_str(), 0) == 0;
}

bool Selector::matches(const CallTraits &call) const {
    const bool has_type = row_of(call.collective).has_values;
    return (!collective || *collective == call.collective) &&
           (!type || (has_type && *type == call.type)) &&
           (!op || (reduces(call.collective) && *op == call.op)) && count.has(call.count) &&
           bytes.has(call.bytes()) && ranks.has(call.ranks) && hosts.has(call.hosts);
}

Result<Selector> parse_selector(std::string_view conditions) {
    Selector selector;
    std::vector<std::string_view> names;
    for (Parted list{{}, conditions, true}; list.is_marked;) {
        list = parted_at(list.behind, ',');
        const std::string_view text = trimmed(list.before);
        if (text.empty()) return invalid_argument("a condition is empty");
        QCCL_TRY(take_condition(take_apart(text), names, selector));
    }
    QCCL_TRY(check_possible(selector, conditions));
    return selector;
}

std::string spec(const Selector &selector) {
    std::string text;
    if (!selector.comm.empty()) add(text, "comm", "=", selector.comm);
    if (selector.collective) add(text, "collective", "=", name(*selector.collective));
    if (selector.type) add(text, "type", "=", name(*selector.type));
    if (selector.op) add(text, "op", "=", name(*selector.op));
    for (const RangeKey &row : range_keys) {
        const NumberRange &range = selector.*row.range;
        if (range.least == range.most) {
            add(text, row.name, "=", std::to_string(range.least));
            continue;
        }
        if (range.least != 0) add(text, row.name, ">=", std::to_string(range.least));
        if (range.most != UINT64_MAX) add(text, row.name, "<=", std::to_string(range.most));
    }
    return text;
}

// ---- Rules

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
    return invalid_argument("%s: %.400s", who.c_str(), done.error().text);
}

Done check_reached(const Rule &rule, const std::vector<Rule> &before) {
    if (rule.text.empty()) return invalid_argument("it is empty");
    if (before.empty()) return {};
    const Rule &last = before.back();
    const bool takes_all = last.codec || !*last.algorithm; // an algorithm lacks some collectives
    if (!takes_all || !last.selector.is_unconditional()) return {};
    return invalid_argument("no call comes to \"%.100s\", because the item before it, \"%.100s\", "
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
    QCCL_TRY(check_for_reductions(codec));
    const bool sums = !selector.op || adds(*selector.op);
    const bool is_float = !selector.type || info(*selector.type).is_float;
    const bool reduces_values = !selector.collective || reduces(*selector.collective);
    if (codec.keeps_type() || (sums && is_float && reduces_values)) return {};
    return invalid_argument(
        "codec %s can match no call: it reaches sum and avg of floating point in "
        "all_reduce and reduce_scatter alone, not \"%.100s\"",
        spec(codec).c_str(), spec(selector).c_str());
}

Done check_has(const Algorithm &algorithm, const Selector &selector) {
    if (!algorithm || !selector.collective || algorithm.has(*selector.collective)) return {};
    return invalid_argument("%s can match no call: it has no %s", spec(algorithm).c_str(),
                            name(*selector.collective));
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
