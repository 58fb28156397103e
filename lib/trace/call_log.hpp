// The call log: one rank's calls as text, which QCCL_RECORD_CALLS writes and tools read
// (docs/architecture.md describes the format). The callers handle files and clocks. Pure; any
// thread may call.
//
// summarize() reads the call logs of a job's ranks: calls by shape, the time in calls and between
// them, and the skew of the ranks. Used by the tools that read call logs. Pure; any thread may
// call.
#pragma once

#include "base/result.hpp"
#include "base/types.hpp"

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace qccl {

// Any change of a row's meaning needs a new version.
inline constexpr uint32_t call_log_version = 2;
inline constexpr uint32_t most_logged_ranks = 65536; // a job has no more

// The rank that wrote the file, and the origin of its times.
struct CallLogHead {
    uint32_t rank = 0, ranks = 1; // of its first communicator
    int64_t pid = 0;
    int64_t epoch_ns = 0; // CLOCK_REALTIME at which the times of all rows are 0
    std::string host{};
    std::string library{}; // its version
};

struct LoggedComm {
    uint32_t id = 0;              // 1, 2, ... in the file
    uint64_t session = 0;         // equal on all ranks of the communicator; other communicators
                                  // hardly have the same
    uint32_t parent = 0;          // id of the communicator it was made from; 0: none
    std::string origin{};         // init, split, shrink, pair or grow
    uint32_t rank = 0;            // in this communicator
    std::vector<uint32_t> node{}; // by rank: the number of its node; ranks of one node share memory
    double ranks_per_core = 1;    // at the place where most ranks share cores
    std::string name{};           // config.name; may be empty

    uint32_t ranks() const { return static_cast<uint32_t>(node.size()); }
};

// The properties that calls have in common.
struct LoggedShape {
    uint32_t id = 0; // 1, 2, ... in the file
    uint32_t comm = 0;
    Collective collective = Collective::barrier;
    DataType type = DataType::float32;
    RedOp op = RedOp::sum;
    uint32_t root = 0;
    uint64_t count = 0; // as in the C function
    // Specs: what the call, the communicator or the environment named (auto: nothing), and what the
    // planner chose.
    std::string asked_codec{}, asked_algorithm{}, codec{}, inner_codec{}, algorithm{};
    uint64_t bytes = 0;      // of the call's vector, unencoded
    uint64_t wire_bytes = 0; // that this rank sends in each call
};

struct LoggedCall {
    uint32_t comm = 0, shape = 0;
    uint64_t number = 0; // on its communicator
    uint64_t tag = 0;
    // Times are on the writer's clock since CallLogHead::epoch_ns.
    int64_t start_ns = 0;
    int64_t duration_ns = 0;
    int64_t queued_ns = 0; // time that the call waited in a stream before it started
    bool has_failed = false;
};

struct CallLog {
    CallLogHead head;
    std::vector<LoggedComm> comms;   // by id - 1
    std::vector<LoggedShape> shapes; // by id - 1
    std::vector<LoggedCall> calls;   // within a communicator by number
    uint64_t lost = 0;               // calls that were made but have no row
    bool has_ended = false;          // every communicator has its end row
    bool is_cut = false;             // the last row was incomplete and is left out
};

// Each appends a row and its line end.
void append_row(std::string &text, const CallLogHead &head);
void append_row(std::string &text, const LoggedComm &comm);
void append_row(std::string &text, const LoggedShape &shape);
void append_row(std::string &text, const LoggedCall &call);
void append_lost(std::string &text, uint32_t comm, uint64_t calls);
void append_end(std::string &text, uint32_t comm, int64_t time_ns);

// Parses a call log; `text` may be any bytes. Returns damaged_data with the line and the expected
// content if a row is not as its writer makes it. A last row without a line end is no error: a
// killed process leaves one.
Result<CallLog> parse_call_log(std::string_view text);

// ---- Summary

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
