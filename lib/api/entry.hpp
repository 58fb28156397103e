// How a C function gets into a communicator: the handle is one, this process may use it, and no
// other thread is inside.
#pragma once

#include "api/boundary.hpp"
#include "api/comm.hpp"
#include "api/handle_mark.hpp"

struct qcclComm {
    qccl::HandleMark<0x4D4D4F434C434351> mark; // "QCCLCOMM"
    std::shared_ptr<qccl::Comm> comm;

    bool is_intact() const { return mark.is_intact(); }
};

namespace qccl {

// For functions that any thread may call at any time.
Done check_handle(qcclComm_t handle);
// For the others; leave the gate when done.
Done enter(qcclComm_t handle);
// Another thread may end the communicator meanwhile, which the caller keeps.
Done enter_after_others(Comm &comm);
// What cannot be done at this point; kept in the communicator, for whoever asks it later.
Error refuse(Comm &comm, const char *sentence);
// Why the gate did not let a thread in.
Error refuse_entry(Comm &comm, Gate::Answer answer);

// The caller may correct what was wrong and call again, and the others wait for that.
inline bool is_refusal(const Error &error) {
    return error.code == Code::invalid_argument || error.code == Code::invalid_usage;
}
// Whoever ends a communicator's calls must not be in the middle of one.
Done check_outside(Comm &comm);

inline std::unique_ptr<qcclComm> make_handle(std::shared_ptr<Comm> comm) {
    auto handle = std::make_unique<qcclComm>();
    handle->comm = std::move(comm);
    return handle;
}

// body: Done(Comm &). Its error is kept for this thread.
template <class Body> qcclResult_t at_any_time(qcclComm_t handle, Body &&body) noexcept {
    return guarded([&]() -> Done {
        QCCL_TRY(check_handle(handle));
        return body(*handle->comm);
    });
}

// Of these, questions: the error is kept in the communicator too, which outlives them. An answer
// leaves an earlier call's error where it is, for whoever asks more about it.
template <class Body> qcclResult_t ask(qcclComm_t handle, Body &&body) noexcept {
    return at_any_time(handle, [&](Comm &comm) -> Done {
        const Done done = contained([&]() -> Done { return body(comm); });
        if (!done) comm.note(done.error());
        return done;
    });
}

// Behind the gate. The error is kept in the communicator too, for whoever asks it later, until a
// call succeeds.
template <class Body> qcclResult_t do_and_leave(Comm &comm, Body &&body) noexcept {
    const Done done = contained([&]() -> Done { return body(comm); });
    done ? comm.note_success() : comm.note(done.error());
    comm.gate().leave(); // from here on another thread may free it
    return done ? qcclSuccess : report(done.error());
}
template <class Body> qcclResult_t inside(qcclComm_t handle, Body &&body) noexcept {
    if (const Done entered = enter(handle); !entered) return report(entered.error());
    return do_and_leave(*handle->comm, std::forward<Body>(body));
}
template <class Body> qcclResult_t inside_after_others(Comm &comm, Body &&body) noexcept {
    if (const Done entered = enter_after_others(comm); !entered) return report(entered.error());
    return do_and_leave(comm, std::forward<Body>(body));
}

} // namespace qccl
