// A recorded job, from the logs that QCCL_RECORD_CALLS has written for its ranks. qccl-info calls
// summarizes the logs; qccl-info whatif predicts how long the job would take on another machine or
// with another codec. Used by qccl_info.cpp. Any thread; calls block while they read and compute.
//
// The logs are assembled into a job: which calls of different ranks belong together, and how long
// each rank computed between them. The replay gives the job other times for its calls. The ranks
// compute between calls as long as recorded, and so arrive late as recorded; how long they wait for
// each other follows. find_whatif simulates the calls and replays the job with their times; it
// reads settings and plan files. It is in whatif.cpp, which includes the JSON library.
#pragma once

#include "base/result.hpp"
#include "perf/cli/command_line.hpp"
#include "plan/call_policy.hpp"
#include "trace/call_log.hpp"

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace qccl::perf {

// ---- qccl-info calls

// Prints the ranks, the calls by shape, and the skew. The error (invalid_argument or damaged_data)
// names the file and what is wrong with it.
Done print_calls(const std::vector<std::string> &files);

// Returns the logs in the order of `files`. The error (invalid_argument or damaged_data) names the
// file. Two files of the same rank are refused.
Result<std::vector<CallLog>> read_call_logs(const std::vector<std::string> &files);

// ---- The recorded job

struct RecordedComm {
    std::string name;              // config.name; may be empty
    std::vector<uint32_t> members; // by rank here: the rank in the job, or unknown_rank
};

// What calls of one communicator have in common on all ranks.
struct RecordedShape {
    uint32_t comm = 0; // index into RecordedJob::comms
    LoggedShape shape; // from the first log; wire_bytes is the largest of all logs
    uint64_t calls = 0;
    // Median over the calls of the shortest time that any rank spent in the call, because that rank
    // waited least for the others. For a call with a root the
    // longest time is used.
    double recorded_ns = 0;
};

struct RecordedJob {
    static constexpr uint32_t unknown_rank = UINT32_MAX; // the rank has no log

    // One rank's part in a call.
    struct Part {
        uint32_t call = 0;       // index into `calls`
        int64_t computed_ns = 0; // time since the end of the rank's previous part
        int64_t duration_ns = 0;
    };
    struct Rank {
        uint32_t rank = 0; // in the job
        std::vector<Part> parts{};
        int64_t span_ns = 0; // from the start of the first part to the end of the last
    };
    struct Call {
        uint32_t shape = 0; // index into `shapes`
        uint32_t ranks = 0; // number of ranks whose logs have the call
    };

    uint32_t ranks = 0;         // of the whole job
    std::vector<uint32_t> node; // by rank, from the first communicator
    double ranks_per_core = 1;  // from the first communicator
    std::vector<RecordedComm> comms;
    std::vector<RecordedShape> shapes;
    std::vector<Call> calls;
    std::vector<Rank> logs; // of the ranks that have a log, ascending
    // Number of calls that are not replayed: failed, missing in a log, or lost.
    uint64_t left_out = 0;

    double recorded_ns() const; // the longest span of any rank
};

// Assembles the job. Calls of one communicator that overlap on a rank are treated as consecutive.
// Fails with invalid_argument if there is no log, if the logs belong to several jobs, if ranks
// disagree about a call, if a communicator of part of the job has a rank without a log, or if no
// call is complete.
Result<RecordedJob> put_together(std::span<const CallLog> logs);

// ---- Replay

// The times of a call whose ranks begin together, by rank of its communicator.
struct CallTimes {
    std::vector<double> finish_ns; // until the rank has finished the call
    std::vector<double> busy_ns;   // the part of it in which the rank itself works
};

struct ReplayedTimes {
    double time_ns = 0;     // from the first rank's first call to the end of the last call
    double in_calls_ns = 0; // the largest of any rank
};

// `times` is indexed like RecordedJob::shapes. A rank without a log is never late.
ReplayedTimes replay(const RecordedJob &job, std::span<const CallTimes> times);

// ---- qccl-info whatif

struct WhatIfRequest {
    std::vector<std::string> logs;   // files of QCCL_RECORD_CALLS
    MachineRequest machine = {};     // without ranks: the job's machine, with its cores and
                                     // one host for each node
    std::optional<Codec> codec = {}; // nothing: the codec of each call, or that of the settings
    Algorithm algorithm = {};        // empty: the planner chooses
    std::string plan_file = {}, json_file = {}; // files to write; empty: none
};

// Prints the job as recorded, as predicted with the recorded codecs and algorithms, and as
// predicted with the requested ones, in total and by shape of calls. Fails with invalid_argument or
// damaged_data if logs cannot be read or do not fit together, or if the machine has another number
// of ranks. Fails also if a file cannot be written.
Done print_whatif(const WhatIfRequest &request, const std::vector<std::string> &command_line);

// ---- The answer of whatif

// The calls of one shape with one plan.
struct WhatIfCase {
    double time_ns = 0; // time of a call whose ranks begin together
    uint64_t wire_bytes = 0;
    Codec codec = {};
    std::string algorithm = {};
    std::optional<double> nmse = {}; // nothing: the call has no sum or its values are integers
};

struct WhatIfTotals {
    ReplayedTimes times = {};
    double wire_bytes = 0; // the most that any rank sends
    double nmse = 0;       // the largest of any call
};

struct WhatIfAnswer {
    RecordedJob job;
    Machine machine;
    // Indexed like RecordedJob::shapes: with the recorded codec and algorithm, and as requested.
    std::vector<WhatIfCase> as_recorded, asked;
    WhatIfTotals as_recorded_totals, asked_totals;
    double recorded_wire_bytes = 0;
    PlanFile plan; // the requested plan as rules
};

Result<WhatIfAnswer> find_whatif(const WhatIfRequest &request);

} // namespace qccl::perf
