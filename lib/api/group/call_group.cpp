// Runs a group: enters all of its communicators, makes the channels that its messages need, begins
// the messages, runs the collectives, and waits where the caller named no stream.
#include "api/group/call_group.hpp"

#include "api/group/call_fusion.hpp"
#include "api/group/group_messages.hpp"
#include "comm/boundary.hpp"

#include <future>
#include <map>
#include <memory>
#include <string>
#include <utility>

namespace qccl {

// ---- The group of a thread

// A communicator that this thread has entered.
class EnteredComm {
public:
    static Result<EnteredComm> enter(qcclComm_t handle) {
        QCCL_TRY(CommRef comm, take_comm(handle));
        const auto answer = comm.record().entry_guard.enter(comm.generation());
        if (answer != EntryGuard::Answer::inside) return refuse_entry(comm.record(), answer);
        return EnteredComm(std::move(comm));
    }
    EnteredComm(EnteredComm &&) = default;
    EnteredComm &operator=(EnteredComm &&) = delete;
    ~EnteredComm() {
        if (comm_) comm_.record().entry_guard.leave();
    }
    Comm &comm() const { return *comm_; }

private:
    explicit EnteredComm(CommRef comm) : comm_(std::move(comm)) {}
    CommRef comm_;
};

static CallGroup *&current_group() {
    static constinit thread_local CallGroup *group = nullptr;
    return group;
}

CallGroup *CallGroup::current() { return current_group(); }

void CallGroup::open() {
    if (!current_group()) current_group() = new CallGroup;
    current_group()->depth_++;
}

Done CallGroup::close() {
    CallGroup *const open = current_group();
    if (!open) return Error::make(Code::invalid_usage, "this thread has not called qcclGroupStart");
    if (--open->depth_ > 0) return {};
    const std::unique_ptr<CallGroup> group(std::exchange(current_group(), nullptr));
    return group->run();
}

static Error of_call(size_t number, Collective collective, const Error &error) {
    return reworded(error, "call %zu of the group (%s): %.200s", number, qccl::name(collective),
                    error.text);
}

static Error of_fused_calls(const FusedCall &call, Collective collective, const Error &error) {
    const size_t first = call.first() + 1, last = call.last() + 1;
    if (call.size() == 1) return of_call(first, collective, error);
    if (call.size() == last - first + 1)
        return reworded(error, "calls %zu to %zu of the group, fused (%s): %.200s", first, last,
                        qccl::name(collective), error.text);
    return reworded(error, "%zu of the calls %zu to %zu of the group, fused (%s): %.200s",
                    call.size(), first, last, qccl::name(collective), error.text);
}

Done CallGroup::keep(const Done &checked) {
    if (!checked && !refused_)
        refused_ = of_call(calls_.size(), calls_.back().collective, checked.error());
    return checked;
}

Done CallGroup::add(qcclComm_t handle, const CallArguments &given) {
    GroupedCall &call = calls_.emplace_back(handle, given.collective, given.stream);
    return keep(exception_boundary([&]() -> Done {
        QCCL_TRY(const EnteredComm entered, EnteredComm::enter(handle));
        QCCL_TRY(take_call_stream(entered.comm(), given.stream));
        QCCL_TRY(call.ready, find_ready(entered.comm(), given));
        return {};
    }));
}

Done CallGroup::add(qcclComm_t handle, const MessageArguments &given) {
    GroupedCall &call = calls_.emplace_back(handle, Collective::send, given.stream);
    return keep(exception_boundary([&]() -> Done {
        QCCL_TRY(const qcclCollConfig_t config, take_config(given.config));
        call.message = std::make_unique<const KeptMessage>(given, config);
        QCCL_TRY(const CommRef comm, take_comm(handle));
        return check_message_of_group(*comm, given);
    }));
}

// ---- Running

class CallGroup::GroupRun {
public:
    explicit GroupRun(CallGroup &group) : group_(group) {}
    GroupRun(const GroupRun &) = delete;

    Done run() {
        QCCL_TRY(enter());
        QCCL_TRY(open_channels());
        size_t collectives = 0;
        for (size_t i = 0; i < group_.calls_.size(); i++)
            if (group_.calls_[i].message)
                note(i, add_message(i));
            else
                collectives++;
        messages_.begin(collectives > 0);
        run_collectives();
        messages_.let_streams_wait();
        messages_.finish();
        if (error_) return *error_;
        for (const auto &[handle, entered] : comms_) entered.comm().note_success();
        return {};
    }

private:
    static bool blocks(const GroupedCall &call) {
        return !call.stream || call.stream == QCCL_STREAM_SYNC;
    }
    Comm &comm_of(const GroupedCall &call) const { return comms_.at(call.handle).comm(); }

    // Notes what became of a call. The communicator can be asked for its error later; the group
    // returns the first one.
    void note(size_t i, const Done &done) {
        if (done) return;
        const GroupedCall &call = group_.calls_[i];
        note(call, done.error(), of_call(i + 1, call.collective, done.error()));
    }
    void note(const GroupedCall &call, const Error &error, const Error &of_group) {
        comm_of(call).note(error);
        if (!error_) error_ = of_group;
    }

    Done enter() {
        qcclComm_t last = nullptr;
        for (const GroupedCall &call : group_.calls_) {
            if (call.handle == last || comms_.contains(call.handle)) continue;
            QCCL_TRY(EnteredComm entered, EnteredComm::enter(call.handle));
            comms_.emplace(call.handle, std::move(entered));
            last = call.handle;
        }
        return {};
    }

    // All ranks make their channels in the order of their peers, so that no ranks wait for each
    // other in a circle. Communicators do not wait for each other: their ranks may be in this
    // thread.
    Done open_channels() {
        std::map<qcclComm_t, std::map<int, size_t>> peers; // with the first call for each
        for (size_t i = 0; i < group_.calls_.size(); i++)
            if (const GroupedCall &call = group_.calls_[i]; call.message)
                peers[call.handle].emplace(call.message->peer, i);
        std::vector<std::future<Done>> others;
        Done first;
        for (auto comm = peers.begin(); comm != peers.end(); ++comm) {
            const auto open = [this, &calls = comm->second] { return open_channels(calls); };
            if (std::next(comm) == peers.end())
                first = open();
            else
                others.push_back(std::async(std::launch::async, open));
        }
        for (auto &other : others) {
            const Done done = other.get();
            if (!done && first) first = done.error();
        }
        return first;
    }

    Done open_channels(const std::map<int, size_t> &calls) {
        return exception_boundary([&]() -> Done {
            for (const auto &[peer, i] : calls) {
                const GroupedCall &call = group_.calls_[i];
                if (const auto made = open_channel(comm_of(call), *call.message); !made)
                    return of_call(i + 1, call.collective, made.error());
            }
            return {};
        });
    }

    Done add_message(size_t i) {
        const GroupedCall &call = group_.calls_[i];
        Comm &comm = comm_of(call);
        return settle_message(comm, *call.message, messages_.add(i, comm, *call.message));
    }

    // The calls of one communicator follow one another. Those of other communicators go on at the
    // same time, because one thread may have the ranks of several that wait for each other. Calls
    // that only enqueue, and those of GPUs, whose runtimes look at the thread, stay in this one.
    void run_collectives() {
        std::map<qcclComm_t, CallQueue> queues;
        std::pair<const qcclComm_t, CallQueue> *latest = nullptr; // calls of one follow one another
        for (size_t i = 0; i < group_.calls_.size(); i++) {
            const GroupedCall &call = group_.calls_[i];
            if (call.message) continue;
            if (!latest || latest->first != call.handle)
                latest = &*queues.try_emplace(call.handle).first;
            latest->second.calls.push_back(i);
            latest->second.blocks |= blocks(call);
        }
        std::vector<const CallQueue *> blocking;
        for (auto &[handle, queue] : queues) {
            if (queue.blocks && !comms_.at(handle).comm().parts().device.gpu)
                blocking.push_back(&queue);
            else
                note(run_queue(queue));
        }
        std::vector<std::future<QueueResult>> others;
        for (size_t i = 0; i + 1 < blocking.size(); i++)
            others.push_back(std::async(std::launch::async,
                                        [this, queue = blocking[i]] { return run_queue(*queue); }));
        if (!blocking.empty()) note(run_queue(*blocking.back()));
        for (auto &result : others) note(result.get());
    }

    // The collectives of one communicator, by their index in the group.
    struct CallQueue {
        std::vector<size_t> calls;
        bool blocks = false; // at least one call does
    };
    // What became of a queue: the first call that failed, its error, and that of the group.
    struct QueueFailure {
        const GroupedCall *call;
        Error error, of_group;
    };
    using QueueResult = std::optional<QueueFailure>;

    void note(const QueueResult &result) {
        if (result) note(*result->call, result->error, result->of_group);
    }

    QueueResult run_queue(const CallQueue &queue) {
        const auto call = [&](size_t i) -> const GroupedCall & {
            return group_.calls_[queue.calls[i]];
        };
        for (size_t next = 0; next < queue.calls.size();) {
            const GroupedCall &first = call(next);
            FusionBatch batch(comm_of(first));
            while (next < queue.calls.size() && call(next).stream == first.stream &&
                   batch.join(call(next).ready, queue.calls[next]))
                next++;
            for (const FusedCall &fused : batch.calls()) {
                const GroupedCall &begin = group_.calls_[fused.first()];
                if (const Done done = run(begin, fused); !done)
                    return QueueFailure{&begin, done.error(),
                                        of_fused_calls(fused, begin.collective, done.error())};
            }
        }
        return {};
    }

    Done run(const GroupedCall &first, const FusedCall &fused) {
        Comm &comm = comm_of(first);
        return run_or_abandon(comm, first.collective, [&]() -> Done {
            QCCL_TRY(const CallStream stream, take_call_stream(comm, first.stream));
            return fused.run(comm, stream);
        });
    }

    CallGroup &group_;
    std::map<qcclComm_t, EnteredComm> comms_;
    std::optional<Error> error_;
    GroupMessages messages_{
        [this](size_t i, const Done &done) { note(i, done); }}; // last: it waits
};

Done CallGroup::run() {
    if (refused_) return *refused_;
    if (calls_.empty()) return {};
    return exception_boundary([&] { return GroupRun(*this).run(); });
}

} // namespace qccl

using namespace qccl;

qcclResult_t qcclGroupStart(void) {
    return guarded([]() -> Done {
        CallGroup::open();
        return {};
    });
}
QCCL_TWIN(qcclGroupStart);

qcclResult_t qcclGroupEnd(void) {
    return guarded([] { return CallGroup::close(); });
}
QCCL_TWIN(qcclGroupEnd);
