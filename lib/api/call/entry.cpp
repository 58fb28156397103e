// Implements the handles of communicators, and the errors of calls that cannot enter one.
// Words every error of arguments in one place.
#include "api/call/entry.hpp"

#include "base/c_numbers.hpp"

#include <algorithm>
#include <cinttypes>
#include <cstdint>

namespace qccl {

constinit CommHandles comm_handles{{.tag = 0x51C1,
                                    .argument = "comm",
                                    .unknown = "is no communicator",
                                    .ended = "destroyed or aborted",
                                    .is_inherited = false}};

Done CommRecord::is_made() const {
    if (!creation) return {};
    if (creation->is_done()) return creation->result();
    return Error::make(Code::invalid_usage,
                       "comm is still being made; qcclCommGetAsyncError tells when it is ready");
}

Result<CommRef> take_unmade_comm(qcclComm_t handle) { return comm_handles.refer(handle); }

Result<CommRef> take_comm(qcclComm_t handle) {
    QCCL_TRY(CommRef comm, take_unmade_comm(handle));
    QCCL_TRY(comm.record().is_made());
    return comm;
}

Error refuse(Comm &comm, const char *sentence) {
    const Error error = Error::make(Code::invalid_usage, "%s", sentence);
    comm.note(error);
    return error;
}

Error refuse_entry(CommRecord &record, EntryGuard::Answer answer) {
    Comm &comm = *record.object;
    switch (answer) {
    case EntryGuard::Answer::taken_by_caller:
        return refuse(comm, "comm: this thread is inside the communicator already (in an idle or "
                            "log function)");
    case EntryGuard::Answer::closed:
        return refuse(comm, "comm is being destroyed or aborted by another thread");
    default:
        if (record.has_work())
            return refuse(comm, "comm: an earlier call that returned qcclInProgress is not done; "
                                "qcclCommGetAsyncError tells when it is");
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
    return comm ? refuse_entry(comm->record(), answer) : comm.error();
}

Done enter_after_others(const CommRef &comm) {
    const auto answer = comm.record().entry_guard.enter_after_others(comm.generation());
    if (answer == EntryGuard::Answer::inside) return {};
    return refuse_entry(comm.record(), answer);
}

Error leave_to(CommRecord &record, LaterWork later) {
    record.set_work(later.task);
    record.entry_guard.hand_over();
    const Done started =
        later.task->start([&record, rest = std::move(later.rest)](CommTask &task) -> Done {
            record.entry_guard.take_over();
            return do_and_leave(record, [&](Comm &) { return rest(task); });
        });
    if (started) {
        if (later.made_out) *later.made_out = later.made;
        return still_going();
    }
    record.set_work(nullptr);
    if (later.made) drop_handle(later.made);
    leave(record, noted(*record.object, [&](Comm &) { return started; }));
    return started.error();
}

Done make_handle(std::shared_ptr<Comm> comm, qcclComm_t *handle_out) {
    QCCL_TRY(void *const made, comm_handles.add(std::move(comm)));
    *handle_out = static_cast<qcclComm_t>(made);
    return {};
}

Result<qcclComm_t> reserve_handle(const std::shared_ptr<CommTask> &task) {
    QCCL_TRY(void *const made,
             comm_handles.add(nullptr, [&](CommRecord &record) { record.creation = task; }));
    return static_cast<qcclComm_t>(made);
}

// The handle cannot end before the task has, so the record is this handle's.
Done fill_handle(qcclComm_t handle, Result<std::shared_ptr<Comm>> made) {
    QCCL_TRY(std::shared_ptr<Comm> comm, std::move(made));
    const HandleId id = HandleId::of(handle);
    CommRecord &record = *comm_handles.find(id);
    record.object = std::move(comm);
    record.open(id.generation);
    return {};
}

void drop_handle(qcclComm_t handle) {
    if (auto unmade = take_unmade_comm(handle)) (void)unmade->end();
}

Done make_comm(const CommConfig &comm_config, qcclComm_t *handle_out, const CreateComm &create) {
    if (!comm_config.nonblocking) {
        QCCL_TRY(auto comm, create(nullptr));
        return make_handle(std::move(comm), handle_out);
    }
    const auto task = std::make_shared<CommTask>();
    QCCL_TRY(const qcclComm_t handle, reserve_handle(task));
    const Done started = task->start(
        [handle, create](CommTask &running) { return fill_handle(handle, create(&running)); });
    if (!started) {
        drop_handle(handle);
        return started;
    }
    *handle_out = handle;
    return still_going();
}

Done make_child_comm(const CommConfig &comm_config, bool joins_one, qcclComm_t *handle_out,
                     LaterWork &later, const CreateComm &create) {
    if (!comm_config.nonblocking) {
        QCCL_TRY(auto comm, create(nullptr));
        if (comm) return make_handle(std::move(comm), handle_out);
        *handle_out = nullptr;
        return {};
    }
    later.task = std::make_shared<CommTask>();
    if (joins_one) {
        QCCL_TRY(later.made, reserve_handle(later.task));
    }
    later.made_out = handle_out;
    later.rest = [handle = later.made, create](CommTask &running) -> Done {
        auto made = create(&running);
        return handle ? fill_handle(handle, std::move(made)) : outcome(made);
    };
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

// ---- Arguments

Result<DataType> take_type(qcclDataType_t type) {
    if (const auto known = type_from_c(type)) return *known;
    return invalid_argument("type is %" PRId32
                            "; possible are %d (qcclInt8) to %d (qcclFloat8e5m2) "
                            "and %d (qcclInt16) to %d (qcclShortInt)",
                            type, qcclInt8, qcclFloat8e5m2, qcclInt16, own_types.last_in_c())
        .compared(0, type);
}

Done check_count(const char *argument, size_t count, DataType type, uint32_t times) {
    // An address space cannot hold 2^56 values. Up to that count no encoded size overflows.
    const size_t most = std::min<size_t>(PTRDIFF_MAX / type_bytes(type), size_t{1} << 56) / times;
    if (count <= most) return {};
    return invalid_argument(
        "%s is %zu, but memory can hold at most %zu values of %s for each of %" PRIu32 " blocks",
        argument, count, most, name(type), times);
}

Error missing(const Buffer &buffer) {
    return invalid_argument("%s is NULL, but %zu bytes are to be there", buffer.name, buffer.bytes);
}

Error overlap(const Buffer &a, const Buffer &b) {
    return invalid_argument("%s (%zu bytes at %p) and %s (%zu bytes at %p) overlap", a.name,
                            a.bytes, a.start, b.name, b.bytes, b.start);
}

} // namespace qccl
