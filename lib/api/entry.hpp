// How a C function gets at a communicator: the handle is one and has not ended, this process may
// use it, and no other thread is inside.
#pragma once

#include "api/boundary.hpp"
#include "api/comm.hpp"
#include "api/gate.hpp"
#include "api/handle_table.hpp"

namespace qccl {

struct CommRecord : HandleRecord<Comm> {
    void open(uint32_t generation) { gate.open(generation); }

    Gate gate;
};
using CommHandles = HandleTable<CommRecord>;
using CommRef = CommHandles::Reference;
extern constinit CommHandles comm_handles;

// For functions that any thread may call at any time: the communicator lives as long as this does.
Result<CommRef> take_comm(qcclComm_t handle);
// Why a call could not enter.
Error refuse_entry(qcclComm_t handle, Gate::Answer answer);
// Waits for another thread that is inside.
Done enter_after_others(const CommRef &comm);
// What cannot be done at this point; kept in the communicator, which can be asked for it later.
Error refuse(Comm &comm, const char *sentence);
Error refuse_entry(Comm &comm, Gate::Answer answer);

// The caller may correct what was wrong and call again, and the others wait for that.
inline bool is_refusal(const Error &error) {
    return error.code == Code::invalid_argument || error.code == Code::invalid_usage;
}
// A thread that ends a communicator's calls must not be in the middle of one.
Done check_outside(const CommRef &comm);

// Handles for new communicators, for all or for none.
Done make_handles(std::vector<std::shared_ptr<Comm>> comms, qcclComm_t *handles_out);
Done make_handle(std::shared_ptr<Comm> comm, qcclComm_t *handle_out);

// body: Done(CommRef &). Its error is kept for this thread.
template <class Body> qcclResult_t with_reference(qcclComm_t handle, Body &&body) noexcept {
    return guarded([&]() -> Done {
        QCCL_TRY(CommRef comm, take_comm(handle));
        return body(comm);
    });
}
// body: Done(Comm &).
template <class Body> qcclResult_t at_any_time(qcclComm_t handle, Body &&body) noexcept {
    return with_reference(handle, [&](const CommRef &comm) -> Done { return body(*comm); });
}

// Keeps the error in the communicator too, which can be asked for it later.
template <class Body> Done noted(Comm &comm, Body &&body) noexcept {
    const Done done = contained([&]() -> Done { return body(comm); });
    if (!done) comm.note(done.error());
    return done;
}
// Of these, questions. An answer leaves an earlier call's error where it is, since who handles it
// may ask more.
template <class Body> qcclResult_t ask(qcclComm_t handle, Body &&body) noexcept {
    return at_any_time(handle, [&](Comm &comm) { return noted(comm, body); });
}

// Behind the gate. A call that succeeds ends what an earlier refusal said.
template <class Body> Done do_and_leave(CommRecord &record, Body &&body) noexcept {
    const Done done = noted(*record.object, body);
    if (done) record.object->note_success();
    record.gate.leave(); // from here on another thread may free the communicator
    return done;
}
template <class Body> qcclResult_t inside(qcclComm_t handle, Body &&body) noexcept {
    const HandleId id = HandleId::of(handle);
    CommRecord *const record = comm_handles.find(id);
    auto answer = Gate::Answer::closed;
    if (record && record->is_of_this_process()) answer = record->gate.enter(id.generation);
    if (answer != Gate::Answer::inside) return report(refuse_entry(handle, answer));
    const Done done = do_and_leave(*record, body);
    return done ? qcclSuccess : report(done.error());
}

} // namespace qccl
