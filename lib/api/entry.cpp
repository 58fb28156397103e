// Implements the handles of communicators, and the errors of calls that cannot enter one.
#include "api/entry.hpp"

#include <algorithm>

namespace qccl {

constinit CommHandles comm_handles{{.tag = 0x51C1,
                                    .argument = "comm",
                                    .unknown = "is no communicator",
                                    .ended = "destroyed or aborted",
                                    .is_inherited = false}};

Result<CommRef> take_comm(qcclComm_t handle) { return comm_handles.refer(handle); }

Error refuse(Comm &comm, const char *sentence) {
    const Error error = Error::make(Code::invalid_usage, "%s", sentence);
    comm.note(error);
    return error;
}

Error refuse_entry(Comm &comm, EntryGuard::Answer answer) {
    switch (answer) {
    case EntryGuard::Answer::taken_by_caller:
        return refuse(comm, "comm: this thread is inside the communicator already (in an idle or "
                            "log function)");
    case EntryGuard::Answer::closed:
        return refuse(comm, "comm is being destroyed or aborted by another thread");
    default:
        return refuse(comm, "comm: another thread is inside; one at a time may use a communicator");
    }
}

Done check_outside(const CommRef &comm) {
    if (!comm.record().entry_guard.is_taken_by_caller() && !comm->is_running_here()) return {};
    return refuse(*comm, "comm: a communicator cannot be ended from inside (in its idle or log "
                         "function); qcclCommRevoke can be called there");
}

Error refuse_entry(qcclComm_t handle, EntryGuard::Answer answer) {
    const auto comm = take_comm(handle);
    return comm ? refuse_entry(**comm, answer) : comm.error();
}

Done enter_after_others(const CommRef &comm) {
    const auto answer = comm.record().entry_guard.enter_after_others(comm.generation());
    if (answer == EntryGuard::Answer::inside) return {};
    return refuse_entry(*comm, answer);
}

Done make_handle(std::shared_ptr<Comm> comm, qcclComm_t *handle_out) {
    QCCL_TRY(void *const made, comm_handles.add(std::move(comm)));
    *handle_out = static_cast<qcclComm_t>(made);
    return {};
}

Done make_handles(std::vector<std::shared_ptr<Comm>> comms, qcclComm_t *handles_out) {
    std::vector<qcclComm_t> handles(comms.size());
    for (size_t i = 0; i < comms.size(); i++) {
        const Done made =
            exception_boundary([&] { return make_handle(std::move(comms[i]), &handles[i]); });
        if (made) continue;
        // The program has not seen the handles before this one, so they are ended.
        while (i > 0) QCCL_TRY(comm_handles.refer(handles[--i])->end());
        return made;
    }
    std::copy(handles.begin(), handles.end(), handles_out);
    return {};
}

} // namespace qccl
