// How a C function gets from a handle to a communicator: the handle is valid and has not ended,
// this process may use it, and no other thread is inside. Every C function that takes a qcclComm_t
// uses it, from any thread.
// EntryGuard admits one thread of the caller to a communicator at a time, and none once the
// communicator is closed. The guard lies in the handle's record, which outlives the communicator,
// so that a call with an ended handle is refused there. Entering costs one locked instruction. Only
// enter_after_others and close wait for other threads.
//
// Behind it stand the checks of arguments that many C functions share. Each error names the
// argument and quotes the offending value. Any thread may call these functions; nothing blocks.
//
// NamedCodec is what a qcclCodec_t refers to; the C functions of codecs and of collectives use it.
// It never changes after creation, so any thread, any communicator and a forked child may use it;
// nothing blocks.
#pragma once

#include "api/call/comm_task.hpp"
#include "base/result.hpp"
#include "base/types.hpp"
#include "codec/codec.hpp"
#include "comm/boundary.hpp"
#include "comm/comm.hpp"
#include "comm/handle_table.hpp"

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include <pthread.h>
#include <qccl/qccl.h>

namespace qccl {

// ---- One thread inside

class EntryGuard {
public:
    enum class Answer : uint8_t { inside, taken_by_other, taken_by_caller, closed };

    // Opens the guard for the handle of this generation, and for no earlier handle.
    void open(uint32_t generation) {
        is_closing_.store(false, std::memory_order_relaxed);
        owner_.store(no_thread, std::memory_order_relaxed);
        word_.store(idle(generation), std::memory_order_release);
    }

    Answer enter(uint32_t generation) {
        if (is_closing_.load(std::memory_order_relaxed)) return Answer::closed;
        return take(generation, taken);
    }
    // Waits for another thread that is inside.
    Answer enter_after_others(uint32_t generation) {
        return after_others([=, this] { return enter(generation); });
    }
    // Every call leaves, where the compiler takes a call of this for rare.
    [[gnu::always_inline]] void leave() {
        owner_.store(no_thread, std::memory_order_relaxed);
        // The word does not change while a thread is inside.
        const uint64_t word = word_.load(std::memory_order_relaxed);
        word_.store(word - taken, std::memory_order_release);
    }

    // A thread that is inside leaves its place to another one, which then takes it.
    void hand_over() { owner_.store(no_thread, std::memory_order_relaxed); }
    void take_over() { owner_.store(caller(), std::memory_order_relaxed); }

    // Whether the calling thread is inside, or has closed the guard.
    bool is_taken_by_caller() const { return owner_.load(std::memory_order_relaxed) == caller(); }
    // Whether the handle of this generation can no longer enter.
    bool is_closed(uint32_t generation) const {
        const uint64_t word = word_.load(std::memory_order_relaxed);
        return word != idle(generation) && word != idle(generation) + taken;
    }

    // Closes the guard if no thread is inside, and then returns `inside`. Any other answer says why
    // the guard is not closed by this call.
    Answer try_close(uint32_t generation) { return take(generation, shut); }
    // The same, but waits for another thread that is inside, which cannot enter again.
    Answer close(uint32_t generation) {
        is_closing_.store(true, std::memory_order_relaxed);
        return after_others([=, this] { return try_close(generation); });
    }

private:
    // States in the last two bits of the word; the other bits are the generation.
    static constexpr uint64_t taken = 1, shut = 2, one_generation = 4;
    // glibc's thread handles are addresses, so no thread has 0.
    static constexpr uint64_t no_thread = 0;

    static uint64_t idle(uint32_t generation) { return generation * one_generation; }
    static uint64_t caller() { return static_cast<uint64_t>(pthread_self()); }

    Answer take(uint32_t generation, uint64_t state) {
        uint64_t found = idle(generation);
        if (word_.compare_exchange_strong(found, found + state, std::memory_order_acquire)) {
            owner_.store(caller(), std::memory_order_relaxed);
            return Answer::inside;
        }
        if (found != idle(generation) + taken) return Answer::closed;
        return is_taken_by_caller() ? Answer::taken_by_caller : Answer::taken_by_other;
    }
    // Polls, so that leave() need not look for waiting threads.
    template <class Attempt> static Answer after_others(Attempt attempt) {
        Answer answer = attempt();
        while (answer == Answer::taken_by_other) {
            std::this_thread::sleep_for(std::chrono::microseconds(50));
            answer = attempt();
        }
        return answer;
    }

    std::atomic<uint64_t> word_{shut};
    std::atomic<uint64_t> owner_{no_thread};
    std::atomic<bool> is_closing_{false};
};

// ---- From handle to communicator

struct CommRecord : HandleRecord<Comm> {
    // While a task makes the communicator there is no object. The task opens the guard.
    void open(uint32_t generation) {
        if (object) entry_guard.open(generation);
    }
    void close() {
        creation.reset();
        set_work(nullptr);
    }
    // Returns invalid_usage while the communicator is made, and the error of a creation that has
    // failed.
    Done is_made() const;
    bool is_being_made() const { return creation && !creation->is_done(); }

    // The task that is inside the communicator, or was last; may be null.
    std::shared_ptr<CommTask> work() {
        const std::lock_guard lock(work_mutex);
        return work_task;
    }
    void set_work(std::shared_ptr<CommTask> task) {
        const std::lock_guard lock(work_mutex);
        work_task.swap(task);
    }
    bool has_work() {
        const auto task = work();
        return task && !task->is_done();
    }
    // Gives back the threads of tasks that are done, and does not wait for others.
    void join_finished_tasks() {
        if (creation && creation->is_done()) creation->await();
        if (const auto task = work(); task && task->is_done()) task->await();
    }

    EntryGuard entry_guard;
    std::shared_ptr<CommTask> creation; // null: the communicator was made before its handle
    std::mutex work_mutex;
    std::shared_ptr<CommTask> work_task;
};
using CommHandles = HandleTable<CommRecord>;
using CommRef = CommHandles::Reference;
extern constinit CommHandles comm_handles;

// For functions that any thread may call at any time. The communicator lives at least as long as
// the reference.
Result<CommRef> take_comm(qcclComm_t handle);
// The same, also for a communicator that is not made; then the record alone may be used.
Result<CommRef> take_unmade_comm(qcclComm_t handle);
// The error that says why a call could not enter.
Error refuse_entry(qcclComm_t handle, EntryGuard::Answer answer);
// Enters the communicator. Waits for another thread that is inside.
Done enter_after_others(const CommRef &comm);
// Return the error (invalid_usage) of a call that is not possible now, and record it in the
// communicator, which can be asked for it later.
Error refuse(Comm &comm, const char *sentence);
Error refuse_entry(CommRecord &record, EntryGuard::Answer answer);

// Whether the caller may correct the call and repeat it; the other ranks wait for that.
inline bool is_refusal(const Error &error) {
    return error.code == Code::invalid_argument || error.code == Code::invalid_usage;
}
// Refuses to end a communicator (invalid_usage) if this thread is inside one of its calls.
Done check_outside(const CommRef &comm);

// A call inside a communicator, some of whose work is left to a task.
struct LaterWork {
    std::shared_ptr<CommTask> task{};
    CommTask::Body rest{};          // empty: nothing is left
    qcclComm_t made = nullptr;      // the handle that `rest` fills, if it makes a communicator
    qcclComm_t *made_out = nullptr; // receives that handle when the task has started; may be null
};
// Leaves the communicator to the task, which runs `later.rest` and leaves the communicator.
// Requires the entry guard. Returns in_progress, or the error of a task that could not start.
Error leave_to(CommRecord &record, LaterWork later);

// Create handles for new communicators. On error none is left.
Done make_handles(std::vector<std::shared_ptr<Comm>> comms, qcclComm_t *handles_out);
Done make_handle(std::shared_ptr<Comm> comm, qcclComm_t *handle_out);
// Makes a communicator and its handle: now, or in a task if its config says so. Then in_progress is
// returned, unless an error is found before.
using CreateComm = std::function<Result<std::shared_ptr<Comm>>(CommTask *task)>; // null: now
Done make_comm(const CommConfig &comm_config, qcclComm_t *handle_out, const CreateComm &create);
// The same from inside another communicator. create returns null if this rank joins none;
// `joins_one` says the same beforehand.
Done make_child_comm(const CommConfig &comm_config, bool joins_one, qcclComm_t *handle_out,
                     LaterWork &later, const CreateComm &create);
// How a process joins by a unique id. The environment's settings are read on the caller's thread.
struct JoinOrder {
    int nranks, rank;
    qcclUniqueId id;
    CommConfig comm_config;
    EnvSettings env_settings;
    TraceOrigin origin{};
};
// Blocks until all ranks have joined. `task`: the one that joins; null: none does. An error of
// `while_meeting`, which may be empty, ends the wait for ranks that have not joined.
Result<std::shared_ptr<Comm>> join(const JoinOrder &order, const CommTask *task,
                                   const CancelCheck &while_meeting = {});

// Creates a handle for a communicator that the task makes. The task passes what it has made to
// fill_handle, and the caller ends the handle if the task cannot start.
Result<qcclComm_t> reserve_handle(const std::shared_ptr<CommTask> &task);
Done fill_handle(qcclComm_t handle, Result<std::shared_ptr<Comm>> made);
void drop_handle(qcclComm_t handle);

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

// Leaves the entry guard after a call. A call that succeeded ends an earlier refusal.
inline void leave(CommRecord &record, const Done &done) noexcept {
    if (done) record.object->note_success();
    record.entry_guard.leave(); // from here on another thread may free the communicator
}
// Requires the entry guard, and leaves it at the end.
template <class Body> Done do_and_leave(CommRecord &record, Body &&body) noexcept {
    const Done done = noted(*record.object, body);
    leave(record, done);
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

// The same for a call that may leave work to a task: body is a Done(Comm &, LaterWork &). The
// second function requires the entry guard.
template <class Body> Done do_or_leave_to(CommRecord &record, Body &&body) noexcept {
    LaterWork later;
    const Done done = noted(*record.object, [&](Comm &comm) { return body(comm, later); });
    if (done && later.rest) return leave_to(record, std::move(later));
    leave(record, done);
    return done;
}
template <class Body> qcclResult_t inside_or_later(qcclComm_t handle, Body &&body) noexcept {
    return with_reference(handle, [&](const CommRef &comm) -> Done {
        CommRecord &record = comm.record();
        const auto answer = record.entry_guard.enter(comm.generation());
        if (answer != EntryGuard::Answer::inside) return refuse_entry(record, answer);
        return do_or_leave_to(record, body);
    });
}

// ---- Arguments

struct Buffer {
    const char *name; // of the argument, as the C header calls it
    const void *start;
    size_t bytes;
};

// Convert a C value. Any other number gives invalid_argument, which states the possible range.
Result<DataType> take_type(qcclDataType_t type);
// Checks that memory can hold `times` blocks of `count` values of `type`. `argument` is the count's
// name in the error (invalid_argument).
Done check_count(const char *argument, size_t count, DataType type, uint32_t times);
// The errors (invalid_argument) that the two checks below return.
Error missing(const Buffer &buffer);
Error overlap(const Buffer &a, const Buffer &b);
// Whether the buffer is not NULL, or has 0 bytes.
inline bool is_there(const Buffer &buffer) { return buffer.start || buffer.bytes == 0; }
// Whether two buffers share no byte.
inline bool are_apart(const Buffer &a, const Buffer &b) {
    const auto a_start = reinterpret_cast<uintptr_t>(a.start);
    const auto b_start = reinterpret_cast<uintptr_t>(b.start);
    if (a.bytes == 0 || b.bytes == 0) return true;
    // Distances are compared, so that a buffer at the end of the address space cannot wrap.
    return a_start <= b_start ? b_start - a_start >= a.bytes : a_start - b_start >= b.bytes;
}
// Refuse what the two functions above deny.
inline Done check_pointer(const Buffer &buffer) {
    if (is_there(buffer)) return {};
    return missing(buffer);
}
inline Done check_apart(const Buffer &a, const Buffer &b) {
    if (are_apart(a, b)) return {};
    return overlap(a, b);
}

// ---- Codecs

struct Kernels;

struct NamedCodec {
    Codec codec;
    const Kernels *kernels = nullptr; // for use without a communicator
};
using CodecHandles = HandleTable<HandleRecord<const NamedCodec>>;
using CodecRef = CodecHandles::Reference;

// Refuses NULL and a value that is no codec (invalid_argument), and a destroyed codec
// (invalid_usage).
Result<CodecRef> take_codec(qcclCodec_t handle);
// Whether take_codec would succeed.
bool is_codec(qcclCodec_t handle);
// Returns the kernels of the best tier that the settings allow, for use without a communicator.
Result<const Kernels *> usual_kernels();
// Makes a handle, which the caller ends.
Result<qcclCodec_t> make_codec(const NamedCodec &codec);
Done end_codec(qcclCodec_t handle);

} // namespace qccl
