// What settings and plan files want of calls: a codec, an algorithm, a cut, each for the calls that
// match a selector; and the lists of items in QCCL_CODEC and QCCL_ALGO. Pure; any thread, nothing
// blocks.
#pragma once

#include "base/result.hpp"
#include "codec/codec.hpp"
#include "coll/algorithm.hpp"
#include "plan/selector.hpp"
#include "schedule/shape.hpp"

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace qccl {

struct RuleSource {
    const char *setting, *unit; // of the setting's text: an item, a line
    int order = 0;              // among the sources
};
inline constexpr RuleSource codec_setting{"QCCL_CODEC", "item", 0};
inline constexpr RuleSource algorithm_setting{"QCCL_ALGO", "item", 1};
inline constexpr RuleSource plan_setting{"QCCL_PLAN_FILE", "line", 2};

struct Rule {
    Selector selector{};
    std::optional<Codec> codec{};
    std::optional<Algorithm> algorithm{}; // the empty one: the planner chooses
    Pieces pieces{};
    const RuleSource *source = &plan_setting;
    uint32_t number = 0; // of the item or line, from 1
    std::string text{};  // as written
};

// "item 2 of QCCL_CODEC, "int4@bytes>=1M""; of a setting with one unconditional item its name
// alone.
std::string describe(const Rule &rule);

// Rules in order: of those that match a call the first one counts that says what is asked for.
class Rules {
public:
    Rules() = default;
    explicit Rules(std::vector<Rule> rules);

    std::span<const Rule> all() const { return rules_; }
    bool is_empty() const { return rules_.empty(); }
    // Null where none says it.
    const Rule *find_codec(const CallTraits &call) const;
    // Of a rule whose algorithm has the collective.
    const Rule *find_algorithm(const CallTraits &call) const;
    const Rule *find_pieces(const CallTraits &call) const;

    // Those whose selectors match the communicator's name, without the condition on it.
    Rules of_communicator(const std::string &name) const;

private:
    using Says = bool (*)(const Rule &rule, const CallTraits &call);
    const Rule *find(const CallTraits &call, Says says) const;

    std::vector<Rule> rules_;
    // Numbers in rules_, ascending: rules that ask for one count are found without a look at the
    // others, of which a plan file may have thousands.
    std::vector<uint32_t> of_any_count_;
    std::vector<std::pair<uint64_t, uint32_t>> of_one_count_; // count, number; sorted
};

// In one spelling: "int4@bytes>=1048576" of a setting, "codec=int4 @bytes>=1048576" of a plan file.
std::string spec(const Rule &rule);
// All of them between ';', which ranks compare.
std::string spec(const Rules &rules);

// Refuses a lossy codec whose selector matches only calls that QCCL_CODEC and plan files do not
// reach: they reach sum and avg of floating point alone.
Done check_reach(const Codec &codec, const Selector &selector);
// Refuses a selector that asks for a collective which the algorithm does not have.
Done check_has(const Algorithm &algorithm, const Selector &selector);

// "int4@comm=dp*,bytes>=1M;none": items between ';', each SPEC or SPEC@CONDITIONS. An error
// (invalid_argument) names the setting, the item if there are several, and what is possible.
Result<Rules> parse_codec_rules(std::string_view text);
Result<Rules> parse_algorithm_rules(std::string_view text);

} // namespace qccl
