// Parses, prints and tests conditions.
#include "plan/selector.hpp"

#include "base/choice.hpp"
#include "base/parse_units.hpp"
#include "base/spec_text.hpp"

#include <algorithm>
#include <vector>

#include <fnmatch.h>

namespace qccl {

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
    {"nodes", &Selector::nodes, parse_count, "a number"},
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

Error refuse(const char *sentence) { return Error::make(Code::invalid_argument, "%s", sentence); }

template <class... Arguments> Error refuse(const char *format, Arguments... arguments) {
    return Error::make(Code::invalid_argument, format, arguments...);
}

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
        return refuse("tag cannot be a condition: ranks may give one call different tags, and all "
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
        return refuse("\"%.*s\": expected %s behind %.*s%.*s",
                      static_cast<int>(condition.whole.size()), condition.whole.data(),
                      row.expected, static_cast<int>(row.name.size()), row.name.data(),
                      static_cast<int>(condition.relation.size()), condition.relation.data());
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
        return refuse("%.*s has no value; write %.*s=VALUE", width, condition.key.data(), width,
                      condition.key.data());
    if (is_range) return take_range(*range, condition, selector);
    if (condition.relation != "=")
        return refuse("%.*s takes = alone, not %.*s", width, condition.key.data(),
                      static_cast<int>(condition.relation.size()), condition.relation.data());
    if (std::find(names.begin(), names.end(), condition.key) != names.end())
        return refuse("%.*s is given twice", width, condition.key.data());
    names.push_back(condition.key);
    if (is_name) return take_name(*name, condition, selector);
    selector.comm = condition.value;
    return {};
}

// Returns what the conditions ask for but the collective does not have; null if there is nothing.
const char *lacking(const Selector &selector) {
    if (!selector.collective) return nullptr;
    if (selector.op && !reduces(*selector.collective)) return "op";
    if (*selector.collective != Collective::barrier) return nullptr;
    if (selector.type) return "type";
    return selector.count.least > 0 || selector.bytes.least > 0 ? "values" : nullptr;
}

Done check_possible(const Selector &selector, std::string_view text) {
    const int width = static_cast<int>(std::min<size_t>(text.size(), 120));
    if (const char *const what = lacking(selector))
        return refuse("\"%.*s\" can match no call: %s has no %s", width, text.data(),
                      name(*selector.collective), what);
    for (const RangeKey &row : range_keys)
        if ((selector.*row.range).is_empty())
            return refuse("\"%.*s\" can match no call: there is no such number of %s", width,
                          text.data(), row.name.data());
    for (const auto &[what, range] :
         {std::pair("ranks", selector.ranks), std::pair("nodes", selector.nodes)})
        if (range.most == 0 || range.least > most_ranks_of_job)
            return refuse("\"%.*s\" can match no call: a job has 1 to %u %s", width, text.data(),
                          static_cast<unsigned>(most_ranks_of_job), what);
    if (selector.nodes.least > selector.ranks.most)
        return refuse("\"%.*s\" can match no call: a node has at least one rank", width,
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
    const bool has_type = call.collective != Collective::barrier;
    return (!collective || *collective == call.collective) &&
           (!type || (has_type && *type == call.type)) &&
           (!op || (reduces(call.collective) && *op == call.op)) && count.has(call.count) &&
           bytes.has(call.bytes()) && ranks.has(call.ranks) && nodes.has(call.nodes);
}

Result<Selector> parse_selector(std::string_view conditions) {
    Selector selector;
    std::vector<std::string_view> names;
    for (Parted list{{}, conditions, true}; list.is_marked;) {
        list = parted_at(list.behind, ',');
        const std::string_view text = trimmed(list.before);
        if (text.empty()) return refuse("a condition is empty");
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

} // namespace qccl
