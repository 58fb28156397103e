// Faults that a user asks for, so that people test their own recovery on one machine:
// "rank=3,call=100,kill;rank=1,delay=5s". Parses and matches; the one who runs calls acts.
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
    std::optional<uint32_t> rank; // nobody named: every rank
    std::optional<uint64_t> call; // none named: every call
    Fault fault = Fault::kill;
    std::chrono::nanoseconds delay{}; // of Fault::delay
    std::string text;                 // as the user wrote it

    bool hits(uint32_t at_rank, uint64_t at_call) const {
        return (!rank || *rank == at_rank) && (!call || *call == at_call);
    }
};

// Rules are separated by ';'. Empty text holds none.
Result<std::vector<InjectRule>> parse_inject(std::string_view text);

// A sentence for each rule that no rank of so many will ever feel, with the reason.
std::vector<std::string> futile_rules(std::span<const InjectRule> rules, uint32_t ranks);

} // namespace qccl
