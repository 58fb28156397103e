// Conditions on calls, as settings and plan files write them behind an '@':
// "comm=dp*,op=sum,bytes>=1M". Used by the parsers of rules. Pure; any thread, nothing blocks.
#pragma once

#include "base/result.hpp"
#include "base/types.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace qccl {

// The properties of a call and of its communicator that conditions test. The tag is not among them,
// because ranks may give one call different tags.
struct CallTraits {
    Collective collective = Collective::all_reduce;
    DataType type = DataType::float32;
    RedOp op = RedOp::sum;
    uint64_t count = 0; // as the C API means it
    uint32_t ranks = 1, nodes = 1;

    // Returns the bytes of the whole vector.
    uint64_t bytes() const {
        const bool has_values = collective != Collective::barrier;
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
    NumberRange count, bytes, ranks, nodes;

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

} // namespace qccl
