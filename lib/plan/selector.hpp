// Conditions on calls, as settings and plan files write them behind an '@':
// "comm=dp*,op=sum,bytes>=1M". The parsers of rules use it. Pure; any thread, nothing blocks.
#pragma once

#include "base/result.hpp"
#include "base/types.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace qccl {

// What conditions look at: a call, and the communicator that makes it. Not its tag, in which ranks
// may differ.
struct CallTraits {
    Collective collective = Collective::all_reduce;
    DataType type = DataType::float32;
    RedOp op = RedOp::sum;
    uint64_t count = 0; // as the C API means it
    uint32_t ranks = 1, nodes = 1;

    // Of the whole vector.
    uint64_t bytes() const {
        const bool has_values = collective != Collective::barrier;
        return has_values ? vector_count(collective, count, ranks) * type_bytes(type) : 0;
    }
};

// A glob for Selector::comm that matches this name, and hardly another: what a selector's text
// cannot hold is any letter.
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
    // Without regard to `comm`.
    bool matches(const CallTraits &call) const;
    bool is_unconditional() const { return *this == Selector(); }
    bool operator==(const Selector &) const = default;
};

// Conditions between commas, blanks around them ignored. An error (invalid_argument) says what is
// possible, or why no call can ever match.
Result<Selector> parse_selector(std::string_view conditions);
// The conditions in one spelling; empty where there are none.
std::string spec(const Selector &selector);

} // namespace qccl
