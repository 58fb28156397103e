// Rules: a codec, an algorithm or a cut that settings and plan files ask for, each for the calls
// that match a selector. Also parses the lists of items in QCCL_CODEC and QCCL_ALGO. Used by plan
// files, call policies and the C API. Pure; any thread, nothing blocks.
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
    const char *setting, *unit; // what the setting's text consists of: items or lines
    int order = 0;              // position among the sources
};
inline constexpr RuleSource codec_setting{"QCCL_CODEC", "item", 0};
inline constexpr RuleSource algorithm_setting{"QCCL_ALGO", "item", 1};
inline constexpr RuleSource plan_setting{"QCCL_PLAN_FILE", "line", 2};

struct Rule {
    Selector selector{};
    std::optional<Codec> codec{};
    std::optional<Algorithm> algorithm{}; // empty: the planner chooses
    Pieces pieces{};
    const RuleSource *source = &plan_setting;
    uint32_t number = 0; // of the item or line, from 1
    std::string text{};  // as written
};

// Describes a rule: "item 2 of QCCL_CODEC, "int4@bytes>=1M"". A setting with one unconditional item
// is described by its name alone.
std::string describe(const Rule &rule);

// Rules in order. The first rule that matches a call and names what is asked for counts.
class Rules {
public:
    Rules() = default;
    explicit Rules(std::vector<Rule> rules);

    std::span<const Rule> all() const { return rules_; }
    bool is_empty() const { return rules_.empty(); }
    // Returns the first matching rule that names a codec; null if there is none.
    const Rule *find_codec(const CallTraits &call) const;
    // Returns the first matching rule with an algorithm that has the collective; null if there is
    // none.
    const Rule *find_algorithm(const CallTraits &call) const;
    // Returns the first matching rule that names a cut; null if there is none.
    const Rule *find_pieces(const CallTraits &call) const;

    // Returns the rules whose selectors match the communicator's name, without that condition.
    Rules of_communicator(const std::string &name) const;

private:
    using Says = bool (*)(const Rule &rule, const CallTraits &call);
    const Rule *find(const CallTraits &call, Says says) const;

    std::vector<Rule> rules_;
    // Indices in rules_, ascending. A plan file may have thousands of rules that each ask for one
    // count; a lookup skips those that ask for other counts.
    std::vector<uint32_t> of_any_count_;
    std::vector<std::pair<uint64_t, uint32_t>> of_one_count_; // count, number; sorted
};

// Returns a rule in one spelling: "int4@bytes>=1048576" of a setting, "codec=int4 @bytes>=1048576"
// of a plan file.
std::string spec(const Rule &rule);
// Returns all rules with ';' between them. Ranks compare this text.
std::string spec(const Rules &rules);

// Refuses a lossy codec whose selector matches only calls that QCCL_CODEC and plan files do not
// reach. These reach sum and avg of floating point alone.
Done check_reach(const Codec &codec, const Selector &selector);
// Refuses a selector that asks for a collective which the algorithm does not have.
Done check_has(const Algorithm &algorithm, const Selector &selector);

// Parse a setting such as "int4@comm=dp*,bytes>=1M;none": items between ';', each SPEC or
// SPEC@CONDITIONS. An error (invalid_argument) names the setting, the item if there are several,
// and what is possible.
Result<Rules> parse_codec_rules(std::string_view text);
Result<Rules> parse_algorithm_rules(std::string_view text);

} // namespace qccl
