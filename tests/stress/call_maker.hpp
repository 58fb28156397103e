// Makes random calls as one rank, through the public API. Used by the programs that play ranks; one
// thread at a time.
#pragma once

#include "call_buffers.hpp"

#include <qccl/qccl.h>

namespace stress {

// Where a rank makes a call.
struct CallPlace {
    qcclComm_t comm;
    int rank, ranks; // in it
    qcclStream_t stream = nullptr;
};

// A rank's operations and codecs. They live as long as the maker, or until it lets go of those that
// calls of an open group use.
class CallMaker {
public:
    CallMaker() = default;
    CallMaker(const CallMaker &) = delete;
    CallMaker &operator=(const CallMaker &) = delete;
    ~CallMaker();

    qcclResult_t make(const Call &call, CallBuffers *buffers, const CallPlace &place,
                      Random &local);
    // Prepares the call, which has no message.
    qcclResult_t prepare(qcclColl_t *prepared, const Call &call, CallBuffers *buffers,
                         const CallPlace &place, Random &local);
    void let_go();

    double timeout_s = 0;    // of messages; 0: the communicator's
    bool op_fails = false;   // the program's own operations return an error
    size_t extra_stride = 0; // a stride that the call cannot have; 0: none

private:
    qcclResult_t configure(const Call &call, const CallBuffers *buffers, const CallPlace &place,
                           Random &local);
    qcclResult_t take_op(const Call &call, const CallPlace &place);
    qcclResult_t reduce(const Call &call, const CallBuffers &buffers, void *recv,
                        const CallPlace &place) const;
    qcclResult_t move(const Call &call, const void *send, void *recv, const CallPlace &place) const;
    qcclResult_t move_v(const Call &call, const CallBuffers &buffers, const void *send, void *recv,
                        const CallPlace &place) const;

    qcclCollConfig_t config_ = QCCL_COLL_CONFIG_INIT; // of the next call
    qcclRedOp_t op_ = qcclSum;                        // of the next call
    qcclRedOp_t own_ops_[2][2] = {};                  // by whether they fail and keep the order
    std::vector<qcclCodec_t> codecs_;
    std::vector<qcclRedOp_t> ops_;
};

} // namespace stress
