#include "api/entry.hpp"

namespace qccl {

Done check_handle(qcclComm_t handle) {
    if (!handle) return Error::make(Code::invalid_argument, "comm is NULL");
    if (!is_alive(handle))
        return Error::make(Code::invalid_argument,
                           "comm is %p, which is no communicator (or has been destroyed)",
                           static_cast<const void *>(handle));
    if (handle->comm->is_child()) return refuse_child("comm");
    return {};
}

Error refuse(Comm &comm, const char *sentence) {
    const Error error = Error::make(Code::invalid_usage, "%s", sentence);
    comm.note(error);
    return error;
}

Error refuse_entry(Comm &comm, Gate::Answer answer) {
    switch (answer) {
    case Gate::Answer::taken_by_caller:
        return refuse(comm, "comm: this thread is inside the communicator already (in an idle or "
                            "log function)");
    case Gate::Answer::closed: // nothing is noted in what may be gone at any moment
        return Error::make(Code::invalid_usage, "comm is being destroyed by another thread");
    default:
        return refuse(comm, "comm: another thread is inside; one at a time may use a communicator");
    }
}

Done check_outside(Comm &comm) {
    if (!comm.gate().is_taken_by_caller() && !comm.is_running_here()) return {};
    return refuse(comm, "comm: a communicator cannot be ended from inside (in its idle or log "
                        "function); qcclCommRevoke can be called there");
}

static Done let_in(Comm &comm, Gate::Answer answer) {
    if (answer == Gate::Answer::inside) return {};
    return refuse_entry(comm, answer);
}

Done enter(qcclComm_t handle) {
    QCCL_TRY(check_handle(handle));
    return let_in(*handle->comm, handle->comm->gate().enter());
}

Done enter_after_others(Comm &comm) { return let_in(comm, comm.gate().enter_after_others()); }

} // namespace qccl
