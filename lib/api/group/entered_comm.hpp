// A communicator that a group's thread is inside of.
#pragma once

#include "comm/boundary.hpp"

#include <utility>

namespace qccl {

class EnteredComm {
public:
    static Result<EnteredComm> enter(qcclComm_t handle) {
        QCCL_TRY(CommRef comm, take_comm(handle));
        const auto answer = comm.record().entry_guard.enter(comm.generation());
        if (answer != EntryGuard::Answer::inside) return refuse_entry(comm.record(), answer);
        return EnteredComm(std::move(comm), true);
    }
    // Of a thread that is inside already, and leaves later.
    static Result<EnteredComm> of_caller(qcclComm_t handle) {
        QCCL_TRY(CommRef comm, take_comm(handle));
        return EnteredComm(std::move(comm), false);
    }
    EnteredComm(EnteredComm &&) = default;
    EnteredComm &operator=(EnteredComm &&) = delete;
    ~EnteredComm() {
        if (comm_ && leaves_) comm_.record().entry_guard.leave();
    }
    Comm &comm() const { return *comm_; }
    // From here on the calling thread is the one inside.
    void take_over() const { comm_.record().entry_guard.take_over(); }

private:
    EnteredComm(CommRef comm, bool leaves) : comm_(std::move(comm)), leaves_(leaves) {}
    CommRef comm_;
    bool leaves_; // at the end
};

} // namespace qccl
