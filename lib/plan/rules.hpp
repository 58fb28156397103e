// Rules: a codec, an algorithm or a cut that settings and plan files ask for, each for the calls
// that match a selector. A selector is a list of conditions on calls, which stands behind an '@':
// "comm=dp*,op=sum,bytes>=1M". Also parses the lists of items in QCCL_CODEC and QCCL_ALGO.
//
// Used by plan files, call policies and the C API. Pure; any thread, nothing blocks.
#pragma once

#include "base/result.hpp"
#include "base/types.hpp"
#include "codec/codec.hpp"
#include "coll/algorithm.hpp"
#include "schedule/shape.hpp"

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace qccl {

// ---- Selectors

// The properties of a call and of its communicator that conditions test. The tag is not among them,
// because ranks may give one call different tags.
struct CallTraits {
    Collective collective = Collective::all_reduce;
    DataType type = DataType::float32;
    RedOp op = RedOp::sum;
    uint64_t count = 0; // as the C API means it
    uint32_t ranks = 1, hosts = 1;

    // Returns the bytes of the whole vector.
    uint64_t bytes() const {
        const bool has_values = row_of(collective).has_values;
        return has_values ? vector_count(collective, count, ranks) * type_bytes(type) : 0;
    }
};

// Returns a glob for Selector::comm that matches this name, and hardly another one. Characters that
// a selector's text cannot hold become '?', which matches any character.
std::string glob_of(std::string_view name);

// Numbers from `least` to `most`.
struct NumberRange {
    uint64_t least = 0, most = UINT64_MAX;

    bool has(uint64_t number) const { return least <= number && number <= most; }
    bool is_empty() const { return least > most; }
    bool operator==(const NumberRange &) const = default;
};

// All conditions of one item; a call matches if it meets each of them.
struct Selector {
    std::string comm; // a glob, as fnmatch takes it; empty: any name
    std::optional<Collective> collective;
    std::optional<DataType> type;
    std::optional<RedOp> op; // calls that do not reduce have none
    NumberRange count, bytes, ranks, hosts;

    bool matches_name(const std::string &communicator) const;
    // Whether the call meets all conditions except `comm`.
    bool matches(const CallTraits &call) const;
    bool is_unconditional() const { return *this == Selector(); }
    bool operator==(const Selector &) const = default;
};

// Parses conditions with commas between them; blanks around them are ignored. An error
// (invalid_argument) says what is possible, or why no call can ever match.
Result<Selector> parse_selector(std::string_view conditions);
// Returns the conditions in one spelling; empty if there are none.
std::string spec(const Selector &selector);

// ---- Rules

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

// Refuses a lossy codec that is of no use in calls which QCCL_CODEC and plan files reach, or whose
// selector matches only others. These reach sum and avg of floating point alone.
Done check_reach(const Codec &codec, const Selector &selector);
// Refuses a selector that asks for a collective which the algorithm does not have.
Done check_has(const Algorithm &algorithm, const Selector &selector);

// Parse a setting such as "int4@comm=dp*,bytes>=1M;none": items between ';', each SPEC or
// SPEC@CONDITIONS. An error (invalid_argument) names the setting, the item if there are several,
// and what is possible.
Result<Rules> parse_codec_rules(std::string_view text);
Result<Rules> parse_algorithm_rules(std::string_view text);

} // namespace qccl
