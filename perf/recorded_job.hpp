// Assembles the calls of a recorded job from the logs of its ranks: which calls of different ranks
// belong together, and how long each rank computed between them. Used by qccl-info whatif. Any
// thread; nothing blocks.
#pragma once

#include "base/result.hpp"
#include "record/call_log.hpp"

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace qccl::perf {

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
    // waited least for the others. For a broadcast the longest time is used.
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

} // namespace qccl::perf
