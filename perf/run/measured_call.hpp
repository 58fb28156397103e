// Makes the calls that a benchmark times: collectives, the patterns of messages, and groups of
// them. Used by a Point on each rank. A call blocks as the C API does. One thread at a time.
#pragma once

#include "base/result.hpp"
#include "perf/report/measurement.hpp"
#include "perf/run/rank_group.hpp"

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include <qccl/qccl.h>

namespace qccl::perf {

// The counts that a rank passes to a v-form: of its part alone, or of the parts of all ranks.
struct OwnCounts {
    std::vector<size_t> sent, received;

    // Empty if the operation is no v-form.
    static OwnCounts of(const Operation &operation, uint32_t rank);
};

// The operation of a rank's calls as C knows it; made for the rank if it has a scalar.
class RankOp {
public:
    static Result<RankOp> create(const Operation &operation, qcclComm_t comm, uint32_t rank);
    RankOp(RankOp &&other) noexcept : op_(std::exchange(other.op_, qcclSum)) {}
    RankOp &operator=(RankOp &&) = delete;
    ~RankOp();

    qcclRedOp_t get() const { return op_; }

private:
    explicit RankOp(qcclRedOp_t op) : op_(op) {}
    qcclRedOp_t op_;
};

// The rank that makes a call.
struct CallingRank {
    qcclComm_t comm;
    uint32_t rank;
    const RankDevice &device;
    const OwnCounts &counts;
    qcclRedOp_t op;
};

// Makes the operation's call, or all calls of its group. `send` and `recv` are the buffers of the
// first call, and the other calls have the parts behind them. In place `send` is null, and the
// values are in `recv`. `config` may be null, as in the C API.
Done make_calls(const CallingRank &caller, const Operation &operation, const std::byte *send,
                std::byte *recv, const qcclCollConfig_t *config);

} // namespace qccl::perf
