// C functions that finalize, destroy, abort or revoke a communicator, or ask for its state, size
// and rank.
#include "api/entry.hpp"

namespace qccl {

// Requires that the entry guard is closed. The communicator is freed with the caller's reference.
static Done end(CommRef &comm) {
    QCCL_TRY(comm.end());
    comm.await_others();
    comm->tell_unused_rules();
    // This does not wait for the destructor: enqueued work may keep the communicator a little
    // longer.
    comm->registrations().clear();
    return {};
}

} // namespace qccl

using namespace qccl;

qcclResult_t qcclCommFinalize(qcclComm_t comm) {
    return inside(comm, [](Comm &entered) { return entered.finalize(); });
}
QCCL_TWIN(qcclCommFinalize);

qcclResult_t qcclCommDestroy(qcclComm_t comm) {
    if (!comm) return qcclSuccess;
    return with_reference(comm, [](CommRef &found) -> Done {
        QCCL_TRY(check_outside(found));
        const auto answer = found.record().entry_guard.try_close(found.generation());
        if (answer != EntryGuard::Answer::inside) return refuse_entry(*found, answer);
        const Done finalized = found->conclude();
        QCCL_TRY(end(found));
        return finalized;
    });
}
QCCL_TWIN(qcclCommDestroy);

qcclResult_t qcclCommAbort(qcclComm_t comm) {
    return with_reference(comm, [](CommRef &found) -> Done {
        QCCL_TRY(check_outside(found));
        found->fail(Error::make(Code::revoked, "rank %u aborted the communicator", found->rank())
                        .at_rank(found->rank()));
        // The sequencer is closed first: a thread inside may be waiting for a call that is far back
        // in its stream.
        found->close();
        const auto answer = found.record().entry_guard.close(found.generation());
        if (answer != EntryGuard::Answer::inside) return refuse_entry(*found, answer);
        return end(found);
    });
}
QCCL_TWIN(qcclCommAbort);

qcclResult_t qcclCommRevoke(qcclComm_t comm) {
    return at_any_time(comm, [](Comm &found) -> Done {
        found.fail(Error::make(Code::revoked, "rank %u revoked the communicator", found.rank())
                       .at_rank(found.rank()));
        return {};
    });
}
QCCL_TWIN(qcclCommRevoke);

qcclResult_t qcclCommGetAsyncError(qcclComm_t comm, qcclResult_t *result_out) {
    return ask(comm, [=](Comm &found) -> Done {
        if (!result_out) return Error::make(Code::invalid_argument, "result_out is NULL");
        const auto failure = found.failure();
        if (failure) found.note_told();
        *result_out = failure           ? to_c(failure->error.code)
                      : found.is_busy() ? qcclInProgress
                                        : qcclSuccess;
        return {};
    });
}
QCCL_TWIN(qcclCommGetAsyncError);

qcclResult_t qcclCommCount(qcclComm_t comm, int *count_out) {
    return ask(comm, [=](Comm &found) -> Done {
        if (!count_out) return Error::make(Code::invalid_argument, "count_out is NULL");
        *count_out = static_cast<int>(found.size());
        return {};
    });
}
QCCL_TWIN(qcclCommCount);

qcclResult_t qcclCommUserRank(qcclComm_t comm, int *rank_out) {
    return ask(comm, [=](Comm &found) -> Done {
        if (!rank_out) return Error::make(Code::invalid_argument, "rank_out is NULL");
        *rank_out = static_cast<int>(found.rank());
        return {};
    });
}
QCCL_TWIN(qcclCommUserRank);
