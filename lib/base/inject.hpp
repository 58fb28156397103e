// Faults that a user injects with QCCL_INJECT to test recovery on one machine:
// "rank=3,call=100,kill;rank=1,delay=5s". This file parses and matches the rules; the communicator
// applies them to its calls. Pure; any thread may call.
#pragma once

#include "base/result.hpp"

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace qccl {

enum class Fault : uint8_t { kill, delay, revoke };

struct InjectRule {
    std::optional<uint32_t> rank; // empty: every rank
    std::optional<uint64_t> call; // empty: every call
    Fault fault = Fault::kill;
    std::chrono::nanoseconds delay{}; // of Fault::delay
    std::string text;                 // as the user wrote it

    bool hits(uint32_t at_rank, uint64_t at_call) const {
        return (!rank || *rank == at_rank) && (!call || *call == at_call);
    }
};

// Parses rules separated by ';'. Empty text gives no rules. Returns invalid_argument for a rule
// that cannot be read.
Result<std::vector<InjectRule>> parse_inject(std::string_view text);

// Returns a sentence, with the reason, for each rule that has no effect on any of `ranks` ranks.
std::vector<std::string> futile_rules(std::span<const InjectRule> rules, uint32_t ranks);

} // namespace qccl
