// The calls of a recorded job, put together from its ranks' logs: which call of one rank is which
// of another's, and what each rank did between them. Used by qccl-info whatif. Pure.
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
    std::vector<uint32_t> members; // by rank: the rank in the job, or unknown_rank
};

// What calls of one communicator have in common on all ranks.
struct RecordedShape {
    uint32_t comm = 0; // RecordedJob::comms
    LoggedShape shape; // as the first log has it; wire_bytes is the most of all logs
    uint64_t calls = 0;
    // Median over the calls, of the rank that was in the call for the shortest time (which waited
    // least for others), or of a broadcast for the longest.
    double recorded_ns = 0;
};

struct RecordedJob {
    static constexpr uint32_t unknown_rank = UINT32_MAX; // it has no log

    // A rank's part in a call.
    struct Part {
        uint32_t call = 0;       // `calls`
        int64_t computed_ns = 0; // since the end of its part in the one before
        int64_t duration_ns = 0;
    };
    struct Rank {
        uint32_t rank = 0; // in the job
        std::vector<Part> parts{};
        int64_t span_ns = 0; // from the start of the first part to the end of the last
    };
    struct Call {
        uint32_t shape = 0; // `shapes`
        uint32_t ranks = 0; // that have a part in it here
    };

    uint32_t ranks = 0;         // of the whole job
    std::vector<uint32_t> node; // by rank, as the first communicator has it
    double ranks_per_core = 1;  // likewise
    std::vector<RecordedComm> comms;
    std::vector<RecordedShape> shapes;
    std::vector<Call> calls;
    std::vector<Rank> logs; // of the ranks that have one, ascending
    // Calls that are not replayed: failed, not in the logs of all their ranks, or lost.
    uint64_t left_out = 0;

    double recorded_ns() const; // the longest span of a rank
};

// Calls on one communicator that run at the same time on a rank count as one after the other.
// Refuses with invalid_argument: no log, logs of several jobs, ranks that disagree in a call, a
// communicator of part of the job of whose ranks one has no log, and a job without a whole call.
Result<RecordedJob> put_together(std::span<const CallLog> logs);

} // namespace qccl::perf
