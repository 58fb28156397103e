#include "api/entry.hpp"

namespace qccl {

Done check_handle(qcclComm_t handle) {
    if (!handle) return Error::make(Code::invalid_argument, "comm is NULL");
    if (reinterpret_cast<uintptr_t>(handle) % alignof(qcclComm) != 0 ||
        handle->magic != qcclComm::intact)
        return Error::make(Code::invalid_argument,
                           "comm is %p, which is no communicator (or has been destroyed)",
                           static_cast<const void *>(handle));
    if (handle->comm->is_child()) return refuse_child("comm");
    return {};
}

Error refuse_entry(Gate::Answer answer) {
    switch (answer) {
    case Gate::Answer::taken_by_caller:
        return Error::make(Code::invalid_usage,
                           "comm: this thread is inside the communicator already (in an idle or "
                           "log function)");
    case Gate::Answer::closed:
        return Error::make(Code::invalid_usage, "comm is being destroyed by another thread");
    default:
        return Error::make(Code::invalid_usage,
                           "comm: another thread is inside; one at a time may use a communicator");
    }
}

Done enter(qcclComm_t handle) {
    QCCL_TRY(check_handle(handle));
    const Gate::Answer answer = handle->comm->gate().enter();
    if (answer == Gate::Answer::inside) return {};
    return refuse_entry(answer);
}

} // namespace qccl
