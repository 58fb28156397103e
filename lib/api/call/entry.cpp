// Implements the handles of communicators, and the errors of calls that cannot enter one.
// Words every error of arguments in one place.
#include "api/call/entry.hpp"

#include "base/c_numbers.hpp"

#include <algorithm>
#include <cinttypes>
#include <cstdarg>
#include <cstdint>

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

Error reworded(const Error &error, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    Error worded = Error::make_from(error.code, format, arguments);
    va_end(arguments);
    return worded.at_rank(error.rank).compared(error.expected, error.got);
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
