// How a C function gets from a handle to a communicator: the handle is valid and has not ended,
// this process may use it, and no other thread is inside. Every C function that takes a qcclComm_t
// uses it, from any thread.
#pragma once

#include "api/boundary.hpp"
#include "api/comm.hpp"
#include "api/entry_guard.hpp"
#include "api/handle_table.hpp"

namespace qccl {

struct CommRecord : HandleRecord<Comm> {
    void open(uint32_t generation) { entry_guard.open(generation); }

    EntryGuard entry_guard;
};
using CommHandles = HandleTable<CommRecord>;
using CommRef = CommHandles::Reference;
extern constinit CommHandles comm_handles;

// For functions that any thread may call at any time. The communicator lives at least as long as
// the reference.
Result<CommRef> take_comm(qcclComm_t handle);
// The error that says why a call could not enter.
Error refuse_entry(qcclComm_t handle, EntryGuard::Answer answer);
// Enters the communicator. Waits for another thread that is inside.
Done enter_after_others(const CommRef &comm);
// Return the error (invalid_usage) of a call that is not possible now, and record it in the
// communicator, which can be asked for it later.
Error refuse(Comm &comm, const char *sentence);
Error refuse_entry(Comm &comm, EntryGuard::Answer answer);

// Whether the caller may correct the call and repeat it; the other ranks wait for that.
inline bool is_refusal(const Error &error) {
    return error.code == Code::invalid_argument || error.code == Code::invalid_usage;
}
// Refuses to end a communicator (invalid_usage) if this thread is inside one of its calls.
Done check_outside(const CommRef &comm);

// Create handles for new communicators. On error none is left.
Done make_handles(std::vector<std::shared_ptr<Comm>> comms, qcclComm_t *handles_out);
Done make_handle(std::shared_ptr<Comm> comm, qcclComm_t *handle_out);

// Runs body, a Done(CommRef &). An error is recorded for this thread.
template <class Body> qcclResult_t with_reference(qcclComm_t handle, Body &&body) noexcept {
    return guarded([&]() -> Done {
        QCCL_TRY(CommRef comm, take_comm(handle));
        return body(comm);
    });
}
// Runs body, a Done(Comm &).
template <class Body> qcclResult_t at_any_time(qcclComm_t handle, Body &&body) noexcept {
    return with_reference(handle, [&](const CommRef &comm) -> Done { return body(*comm); });
}

// Runs body and records an error in the communicator, which can be asked for it later.
template <class Body> Done noted(Comm &comm, Body &&body) noexcept {
    const Done done = exception_boundary([&]() -> Done { return body(comm); });
    if (!done) comm.note(done.error());
    return done;
}
// For functions that only ask. Success leaves an earlier call's error in place, because a caller
// that handles the error may ask more.
template <class Body> qcclResult_t ask(qcclComm_t handle, Body &&body) noexcept {
    return at_any_time(handle, [&](Comm &comm) { return noted(comm, body); });
}

// Requires the entry guard, and leaves it at the end. A call that succeeds ends an earlier refusal.
template <class Body> Done do_and_leave(CommRecord &record, Body &&body) noexcept {
    const Done done = noted(*record.object, body);
    if (done) record.object->note_success();
    record.entry_guard.leave(); // from here on another thread may free the communicator
    return done;
}
// Enters the communicator, runs body, a Done(Comm &), and leaves. It does not wait for other
// threads.
template <class Body> qcclResult_t inside(qcclComm_t handle, Body &&body) noexcept {
    const HandleId id = HandleId::of(handle);
    CommRecord *const record = comm_handles.find(id);
    auto answer = EntryGuard::Answer::closed;
    if (record && record->is_of_this_process()) answer = record->entry_guard.enter(id.generation);
    if (answer != EntryGuard::Answer::inside) return report(refuse_entry(handle, answer));
    const Done done = do_and_leave(*record, body);
    return done ? qcclSuccess : report(done.error());
}

} // namespace qccl
