// Describes in sentences what ranks do at the moment. Used by tools that look at a job from outside
// and by the ranks' own errors, in the same words; the caller collects the states. Pure; any thread
// may call.
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
    std::optional<CallDescriptor> call = std::nullopt; // the one that has begun
    std::optional<Wait> wait = std::nullopt;           // only if the wait is long
    int64_t waited_ns = 0;
    int64_t silent_ns = 0; // since the rank's last sign of life, which a waiting rank gives all the
                           // time
    bool is_remote = false; // a remote rank: its last report
    bool has_left = false, has_failed = false;
    Process process = Process::runs;

    bool is_in_call() const { return begun > ended; }
    bool has_stalled() const { return wait && silent_ns >= 1'000'000'000; }
    // Whether the rank waits and would continue if the event that it waits for came.
    bool is_waiting() const {
        return wait && is_in_call() && !has_left && process == Process::runs && !has_stalled();
    }
};

std::string collective_text(Collective collective);
// "0-3, 7"; `ranks` is ascending.
std::string rank_list(std::span<const uint32_t> ranks);
// Returns what the rank does and which rank it waits for: "waits for a chunk of rank 2, step 3 of
// 8, for 12.3 s".
std::string describe(const RankState &state);
// Returns which rank the ranks wait for in the end, and what the others do: one sentence for all
// ranks of which the same can be said, in the order of their lowest ranks. `states` is in the order
// of ranks.
std::vector<std::string> summarize(std::span<const RankState> states);
// Joins the sentences into one of at most `most` characters.
std::string one_sentence(std::span<const std::string> sentences, size_t most);

} // namespace qccl
