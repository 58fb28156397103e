// What ranks do at the moment, in sentences: the same for whoever looks from outside and in the
// ranks' own errors. Knows not where that is known from.
#pragma once

#include "record/call_descriptor.hpp"
#include "record/wait.hpp"

#include <optional>
#include <span>
#include <string>
#include <vector>

namespace qccl {

struct RankState {
    enum class Process : uint8_t { runs, stopped, ended, unknown };

    uint32_t rank = 0;
    uint64_t begun = 0, ended = 0;                     // latest calls
    std::optional<CallDescriptor> call = std::nullopt; // the one begun
    std::optional<Wait> wait = std::nullopt;           // a long one
    int64_t waited_ns = 0;
    int64_t silent_ns = 0; // since it last looked around, which who waits does all the time
    bool is_far = false;   // this is what it has told last
    bool has_left = false, has_failed = false;
    Process process = Process::runs;

    bool is_in_call() const { return begun > ended; }
    bool has_stalled() const { return wait && silent_ns >= 1'000'000'000; }
    // And would go on if what it waits for came.
    bool is_waiting() const {
        return wait && is_in_call() && !has_left && process == Process::runs && !has_stalled();
    }
};

std::string collective_text(Collective collective);
// "0-3, 7"; ascending.
std::string rank_list(std::span<const uint32_t> ranks);
// What it does, and for whom it waits: "waits for a chunk of rank 2, step 3 of 8, for 12.3 s".
std::string describe(const RankState &state);
// For whom ranks wait in the end, and what the others do: a sentence for all of which the same can
// be said, in the order of their lowest ranks. The states are in the order of ranks.
std::vector<std::string> summarize(std::span<const RankState> states);
// These in one sentence of at most so many characters.
std::string one_sentence(std::span<const std::string> sentences, size_t most);

} // namespace qccl
