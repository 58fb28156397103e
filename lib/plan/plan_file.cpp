// Parser and printer of plan files.
#include "plan/plan_file.hpp"

#include "base/choice.hpp"
#include "base/parse_units.hpp"
#include "base/spec_text.hpp"

#include <algorithm>
#include <optional>
#include <vector>

namespace qccl {

namespace {

constexpr std::string_view title = "qccl-plan";

Error refuse(const char *sentence) { return Error::make(Code::invalid_argument, "%s", sentence); }

template <class... Arguments> Error refuse(const char *format, Arguments... arguments) {
    return Error::make(Code::invalid_argument, format, arguments...);
}

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
        if (key->value != 0) return refuse("%s is given twice", key->name.data());
        const auto number = parse_count(item.behind);
        if (!number || *number == 0 || *number > key->most)
            return refuse("\"%s\": expected %s= and a number from 1 to %llu", excerpt(word).c_str(),
                          key->name.data(), static_cast<unsigned long long>(key->most));
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
        return refuse("segment is \"%s\"; expected a size above 0 such as 256K",
                      excerpt(value).c_str());
    rule.pieces.segment_bytes = *bytes;
    return {};
}

template <auto field> Done store_number(Rule &rule, std::string_view value) {
    const auto number = parse_count(value);
    if (!number || *number == 0 || *number > UINT32_MAX)
        return refuse("\"%s\" is no number from 1 to %u", excerpt(value).c_str(), UINT32_MAX);
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
            return refuse("%s is given twice", key->name.data());
        given.push_back(item.before);
        QCCL_TRY(key->store(rule, item.behind));
    }
    if (given.empty())
        return refuse("it wants nothing; possible are %s", listed(names_of(wish_keys)).c_str());
    if (rule.pieces.segment_bytes != 0 && rule.pieces.parts != 0)
        return refuse("segment and parts are both there; one of them is enough");
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

class Reader {
public:
    Done take(std::string_view line, uint32_t number) {
        const auto words = words_of(line);
        if (!has_title_) return take_title(line, words);
        const bool is_job = words.front() == "job";
        if (is_job && (has_job_ || !rules_.empty()))
            return refuse("the line job stands once, before all rules");
        if (is_job) return take_job(words);
        Rule rule;
        rule.number = number;
        rule.text = line;
        QCCL_TRY(read_rule(line, rule));
        rules_.push_back(std::move(rule));
        return {};
    }

    Result<PlanFile> finish() {
        if (!has_title_) return refuse("it is empty; the first line is \"qccl-plan version=1\"");
        if (promised_ != 0 && promised_ != rules_.size())
            return refuse("it is damaged: it has %zu rules, and its first line says %llu",
                          rules_.size(), static_cast<unsigned long long>(promised_));
        plan_.rules = Rules(std::move(rules_));
        return std::move(plan_);
    }

private:
    Done take_title(std::string_view line, std::span<const std::string_view> words) {
        if (words.front() != title)
            return refuse("it is no plan file: it begins with \"%s\", not with "
                          "\"qccl-plan version=1\"",
                          excerpt(line).c_str());
        NumberKey keys[] = {{"version", UINT32_MAX}, {"rules", UINT32_MAX}};
        // A newer version may have other keys, so the version is checked before them.
        const auto newer = std::ranges::find_if(words, [](std::string_view word) {
            const auto version = parse_count(parted_at(word, '=').behind);
            return word.starts_with("version=") && version && *version > newest_plan_version;
        });
        if (newer != words.end())
            return refuse("it has %s, and this library reads version 1", excerpt(*newer).c_str());
        QCCL_TRY(read_numbers(words.subspan(1), keys));
        if (keys[0].value == 0)
            return refuse("the first line has no version; write \"qccl-plan version=1\"");
        promised_ = keys[1].value;
        has_title_ = true;
        return {};
    }

    Done take_job(std::span<const std::string_view> words) {
        NumberKey keys[] = {{"ranks", UINT32_MAX}, {"nodes", UINT32_MAX}};
        QCCL_TRY(read_numbers(words.subspan(1), keys));
        has_job_ = true;
        plan_.ranks = static_cast<uint32_t>(keys[0].value);
        plan_.nodes = static_cast<uint32_t>(keys[1].value);
        return {};
    }

    PlanFile plan_;
    std::vector<Rule> rules_;
    uint64_t promised_ = 0;
    bool has_title_ = false, has_job_ = false;
};

std::string job_text(uint32_t ranks, uint32_t nodes) {
    std::string text;
    if (ranks != 0) text += std::to_string(ranks) + (ranks == 1 ? " rank" : " ranks");
    if (nodes == 0) return text;
    return text + (text.empty() ? "" : " on ") + std::to_string(nodes) +
           (nodes == 1 ? " node" : " nodes");
}

} // namespace

Result<PlanFile> parse_plan_file(std::string_view text) {
    Reader reader;
    QCCL_TRY(read_lines(
        text, [&](std::string_view line, uint32_t number) { return reader.take(line, number); }));
    return reader.finish();
}

std::string print(const PlanFile &plan) {
    const auto rules = plan.rules.all();
    std::string text(title);
    text += " version=" + std::to_string(newest_plan_version);
    if (!rules.empty()) text += " rules=" + std::to_string(rules.size());
    text += "\n";
    if (plan.ranks != 0 || plan.nodes != 0) text += "job";
    if (plan.ranks != 0) text += " ranks=" + std::to_string(plan.ranks);
    if (plan.nodes != 0) text += " nodes=" + std::to_string(plan.nodes);
    if (plan.ranks != 0 || plan.nodes != 0) text += "\n";
    for (const Rule &rule : rules) text += spec(rule) + "\n";
    return text;
}

Done check_job(const PlanFile &plan, uint32_t ranks, uint32_t nodes) {
    const bool is_ours =
        (plan.ranks == 0 || plan.ranks == ranks) && (plan.nodes == 0 || plan.nodes == nodes);
    if (is_ours) return {};
    return refuse("it is the plan of another job: of %s, and this communicator has %s; a plan "
                  "without the line job serves all, with conditions such as ranks=%u",
                  job_text(plan.ranks, plan.nodes).c_str(), job_text(ranks, nodes).c_str(), ranks);
}

} // namespace qccl
