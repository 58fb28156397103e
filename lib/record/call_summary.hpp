// Summarizes the call logs of a job's ranks: calls by shape, the time in calls and between them,
// and the skew of the ranks. Used by the tools that read call logs. Pure; any thread may call.
#pragma once

#include "record/call_log.hpp"

#include <span>
#include <string>
#include <vector>

namespace qccl {

// Returns what to add to the times of each log so that the clocks of all nodes agree. Logs of one
// node (the same host name) have one clock. The times of the first log's node stay. A node's clock
// is moved only if the logs prove it wrong: no rank ends an all-reduce, reduce-scatter, all-gather
// or barrier before every rank has started it.
std::vector<int64_t> clock_shifts(std::span<const CallLog> logs);

// Calls of one shape on one communicator, on all ranks that have a log.
struct ShapeSummary {
    LoggedShape shape; // as in the log of the lowest rank
    std::string comm;  // its communicator in words: "dp, 4 ranks"
    uint64_t calls = 0;
    uint64_t failed = 0;
    double bytes = 0;                                       // of all calls' vectors
    int64_t shortest_ns = 0, median_ns = 0, longest_ns = 0; // of one rank in one call
    // Time from the first rank's start to the last rank's start, over calls that at least two ranks
    // logged.
    int64_t median_skew_ns = 0, longest_skew_ns = 0;
    uint32_t last_rank = 0;  // the rank that started last in most calls
    uint64_t times_last = 0; // 0: no call was logged by two ranks
};

struct RankSummary {
    CallLogHead head;
    uint64_t calls = 0, failed = 0, lost = 0;
    int64_t span_ns = 0; // from the first call's start to the last one's end
    int64_t call_ns = 0; // the part of span_ns that was spent in calls
    int64_t clock_shift_ns = 0;
    bool has_ended = false, is_cut = false;
};

struct CallSummary {
    std::vector<RankSummary> ranks;   // in the order of the logs
    std::vector<ShapeSummary> shapes; // those that took longest first
};
CallSummary summarize(std::span<const CallLog> logs);

} // namespace qccl
