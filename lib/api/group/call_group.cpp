// Runs a group: enters all of its communicators, makes the channels that its messages need, begins
// the messages, runs the collectives, and waits where the caller named no stream.
#include "api/group/call_group.hpp"

#include "api/group/call_fusion.hpp"
#include "api/group/group_messages.hpp"
#include "api/group/layers.hpp"
#include "comm/boundary.hpp"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace qccl {

// ---- The group of a thread

// A communicator that this thread has entered.
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

static CallGroup *&current_group() {
    static constinit thread_local CallGroup *group = nullptr;
    return group;
}

CallGroup *CallGroup::current() { return current_group(); }

size_t CallGroup::calls_of(qcclComm_t handle) {
    const CallGroup *const open = current();
    if (!open || open->refused_) return 0;
    return static_cast<size_t>(std::ranges::count(open->calls_, handle, &GroupedCall::handle));
}

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

static Error named(const std::string &name, Collective collective, const Error &error) {
    return reworded(error, "%s (%s): %.380s", name.c_str(), qccl::name(collective), error.text);
}

std::string CallGroup::name_of(const GroupedCall &call) const {
    const std::string layer =
        call.layer ? "layers[" + std::to_string(*call.layer) + "]" : std::string();
    if (is_inside_) return layer;
    return "call " + std::to_string(call.number) + " of the group" +
           (call.layer ? ", " + layer : "");
}

std::string CallGroup::name_of(const GroupedCall &first, const GroupedCall &last,
                               size_t calls) const {
    if (calls == 1) return name_of(first);
    const bool are_layers = last.is_layer_of(first);
    const size_t begin = are_layers ? *first.layer : first.number;
    const size_t end = are_layers ? *last.layer : last.number;
    const bool are_all = calls == end - begin + 1;
    std::string text = are_all ? "" : std::to_string(calls) + " of the ";
    if (are_layers && !is_inside_)
        text = "call " + std::to_string(first.number) + " of the group, " + text;
    text +=
        (are_layers ? "layers " : "calls ") + std::to_string(begin) + " to " + std::to_string(end);
    return text + (are_layers ? ", fused" : " of the group, fused");
}

template <class Checks> Done CallGroup::check(Checks &&checks) {
    const size_t latest = calls_.size() - 1;
    const Done checked = exception_boundary(checks);
    if (checked) return checked;
    GroupedCall &call = calls_[latest];
    call.layer.reset(); // the error names the layer
    if (!refused_) refused_ = named(name_of(call), call.collective, checked.error());
    if (const auto comm = take_comm(call.handle)) (*comm)->note(checked.error());
    return checked;
}

CallGroup::GroupedCall &CallGroup::begin_call(qcclComm_t handle, Collective collective,
                                              qcclStream_t stream) {
    return calls_.emplace_back(handle, collective, stream, ++begun_);
}

Done CallGroup::add(qcclComm_t handle, const CallArguments &given) {
    GroupedCall &call = begin_call(handle, given.collective, given.stream);
    return check([&]() -> Done {
        QCCL_TRY(const EnteredComm entered, EnteredComm::enter(handle));
        QCCL_TRY(take_call_stream(entered.comm(), given.stream));
        if (has_layers(given)) return add_layers(entered.comm(), given);
        QCCL_TRY(call.ready, find_ready(entered.comm(), given));
        return add_state(call.ready.request.state.get());
    });
}

Done CallGroup::add_inside(Comm &comm, qcclComm_t handle, const CallArguments &given) {
    is_inside_ = true;
    QCCL_TRY(take_call_stream(comm, given.stream));
    begin_call(handle, given.collective, given.stream);
    return add_layers(comm, given);
}

Done CallGroup::add_layers(Comm &comm, const CallArguments &given) {
    uint32_t hash = 0;
    return split_into_layers(given, [&](size_t number, const CallArguments &layer) -> Done {
        if (number == 0) {
            hash = hash_layers(given);
        } else {
            const GroupedCall &first = calls_.back();
            calls_.emplace_back(first.handle, first.collective, first.stream, first.number);
        }
        GroupedCall &call = calls_.back();
        call.layer = number;
        const auto ready = find_ready(comm, layer);
        if (!ready) return of_layer(number, ready.error());
        call.ready = *ready;
        call.ready.request.counts_hash = hash;
        const Done added = add_state(call.ready.request.state.get());
        return added ? added : of_layer(number, added.error());
    });
}

// The second call would begin before the caller could know that the first one has succeeded.
Done CallGroup::add_state(const FeedbackState *state) {
    if (!state || states_.insert(state).second) return {};
    return Error::make(Code::invalid_usage,
                       "config: state is that of an earlier call of the group or an earlier layer");
}

Done CallGroup::add(qcclComm_t handle, const MessageArguments &given) {
    GroupedCall &call = begin_call(handle, Collective::send, given.stream);
    return check([&]() -> Done {
        QCCL_TRY(const qcclCollConfig_t config, take_config(given.config));
        call.message = std::make_unique<const KeptMessage>(given, config);
        QCCL_TRY(const EnteredComm entered, EnteredComm::enter(handle));
        return check_message_of_group(entered.comm(), given);
    });
}

Done CallGroup::add(qcclComm_t handle, const MessageArguments &to, const MessageArguments &from) {
    GroupedCall &call = begin_call(handle, Collective::send, to.stream);
    QCCL_TRY(check([&]() -> Done {
        QCCL_TRY(const EnteredComm entered, EnteredComm::enter(handle));
        QCCL_TRY(call.copy, check_both(entered.comm(), to, from));
        return {};
    }));
    if (call.copy) return {};
    calls_.pop_back();
    begun_--;
    QCCL_TRY(add(handle, to));
    return add(handle, from);
}

// ---- Running

class CallGroup::GroupRun {
public:
    explicit GroupRun(CallGroup &group) : group_(group) {}
    GroupRun(const GroupRun &) = delete;

    Done run() {
        QCCL_TRY(enter());
        QCCL_TRY(check_states());
        const Done ended = exception_boundary([this]() -> Done {
            make_calls();
            return {};
        });
        // Without this the other ranks would wait for what is not made.
        if (!ended) abandon_all(ended.error());
        if (error_) return *error_;
        for (const auto &[handle, entered] : comms_) entered.comm().note_success();
        return {};
    }

private:
    static bool blocks(const GroupedCall &call) { return qccl::blocks(call.stream); }
    Comm &comm_of(const GroupedCall &call) const { return comms_.at(call.handle).comm(); }

    // Notes what became of a call. The communicator can be asked for its error later; the group
    // returns the first one.
    void note(size_t i, const Done &done) {
        if (done) return;
        const GroupedCall &call = group_.calls_[i];
        note(call, done.error(), named(group_.name_of(call), call.collective, done.error()));
    }
    void note(const GroupedCall &call, const Error &error, const Error &of_group) {
        comm_of(call).note(error);
        if (!error_) error_ = of_group;
    }
    void abandon_all(const Error &why) {
        for (size_t i = 0; i < group_.calls_.size(); i++)
            note(i, comm_of(group_.calls_[i]).abandon(group_.calls_[i].collective, why));
    }

    void make_calls() {
        open_channels();
        size_t collectives = 0;
        for (size_t i = 0; i < group_.calls_.size(); i++) {
            const GroupedCall &call = group_.calls_[i];
            if (call.message)
                note(i, add_message(i));
            else if (call.copy)
                note(i, call.copy());
            else
                collectives++;
        }
        messages_.begin(collectives > 0);
        run_collectives();
        messages_.let_streams_wait();
        messages_.finish();
    }

    // Calls work(i) for each of these communicators at the same time: for the last one in this
    // thread, for each other one in a thread of its own, which is the one inside meanwhile. Calls
    // forgo(i, error) where no thread can be had. Neither lets an exception out.
    template <class Work, class Forgo>
    void run_at_once(const std::vector<qcclComm_t> &handles, Work work, Forgo forgo) {
        if (handles.empty()) return;
        {
            std::vector<std::jthread> threads;
            threads.reserve(handles.size() - 1);
            for (size_t i = 0; i + 1 < handles.size(); i++) {
                const Done started = exception_boundary([&]() -> Done {
                    threads.emplace_back([&work, i, &entered = comms_.at(handles[i])] {
                        entered.take_over();
                        work(i);
                    });
                    return {};
                });
                if (!started) forgo(i, started.error());
            }
            work(handles.size() - 1);
        }
        for (const qcclComm_t handle : handles) comms_.at(handle).take_over();
    }

    Done enter() {
        qcclComm_t last = nullptr;
        for (const GroupedCall &call : group_.calls_) {
            if (call.handle == last || comms_.contains(call.handle)) continue;
            QCCL_TRY(EnteredComm entered, group_.is_inside_ ? EnteredComm::of_caller(call.handle)
                                                            : EnteredComm::enter(call.handle));
            comms_.emplace(call.handle, std::move(entered));
            last = call.handle;
        }
        return {};
    }

    // Calls before that of a state in use would have been made. On a GPU a call takes its state
    // when its stream has come to it.
    Done check_states() const {
        for (const GroupedCall &call : group_.calls_) {
            const FeedbackState *const state = call.ready.request.state.get();
            if (!state || comm_of(call).parts().device.gpu || !state->is_used()) continue;
            const Error error = StateUse::is_used_already();
            comm_of(call).note(error);
            return named(group_.name_of(call), call.collective, error);
        }
        return {};
    }

    // All ranks make their channels in the order of their peers, so that no ranks wait for each
    // other in a circle. Communicators do not wait for each other: their ranks may be in this
    // thread.
    void open_channels() {
        std::map<qcclComm_t, std::map<int, size_t>> peers; // with the first call for each
        for (size_t i = 0; i < group_.calls_.size(); i++)
            if (const GroupedCall &call = group_.calls_[i]; call.message)
                peers[call.handle].emplace(call.message->peer, i);
        std::vector<qcclComm_t> handles;
        std::vector<CallResult> results;
        for (const auto &[handle, calls] : peers) {
            handles.push_back(handle);
            results.push_back({.number = calls.begin()->second});
        }
        run_at_once(
            handles, [&](size_t i) { open_channels(peers.at(handles[i]), results[i]); },
            [&](size_t i, const Error &error) { forgo(results[i], error); });
        for (const CallResult &result : results) note(result.number, result.done);
    }

    // What became of some calls: the first of them that failed, if one has.
    struct CallResult {
        size_t number;
        Done done{};
    };

    void open_channels(const std::map<int, size_t> &calls, CallResult &result) {
        for (const auto &[peer, i] : calls) {
            const GroupedCall &call = group_.calls_[i];
            const Done opened = run_or_abandon(comm_of(call), call.collective, [&] {
                return outcome(open_channel(comm_of(call), *call.message));
            });
            if (opened) continue;
            result = {i, opened};
            return;
        }
    }
    // Fails the communicator for a call that this rank does not make.
    void forgo(CallResult &result, const Error &why) {
        const GroupedCall &call = group_.calls_[result.number];
        result.done = comm_of(call).abandon(call.collective, why);
    }

    Done add_message(size_t i) {
        const GroupedCall &call = group_.calls_[i];
        Comm &comm = comm_of(call);
        return settle_message(comm, *call.message, messages_.add(i, comm, *call.message));
    }

    // Collectives of one communicator and one stream.
    struct CallBatch {
        CallBatch(const GroupedCall &begin, const Comm &comm)
            : first(begin), handle(begin.handle), stream(begin.stream),
              calls(comm,
                    begin.layer ? FusionBatch::Calls::are_apart : FusionBatch::Calls::keep_order) {}

        // Layers touch none but their own part of the vectors, so their order does not matter.
        bool takes(const GroupedCall &call) const {
            if (stream != call.stream) return false;
            return first.layer || call.layer ? call.is_layer_of(first) : true;
        }

        const GroupedCall &first;
        const qcclComm_t handle;
        const qcclStream_t stream;
        FusionBatch calls;
        bool is_over = false; // has run, or is left out
    };
    // The batches of one communicator.
    struct CallQueue {
        std::vector<CallBatch *> batches;
        bool is_host = true, blocks = false; // at least one call does
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

    // Fills batches_, in the order of their first calls.
    std::map<qcclComm_t, CallQueue> make_queues() {
        std::map<qcclComm_t, CallQueue> queues;
        std::pair<const qcclComm_t, CallQueue> *latest = nullptr; // calls of one follow one another
        for (size_t i = 0; i < group_.calls_.size(); i++) {
            const GroupedCall &call = group_.calls_[i];
            if (!call.is_collective()) continue;
            if (!latest || latest->first != call.handle)
                latest = &*queues.try_emplace(call.handle).first;
            CallQueue &queue = latest->second;
            CallBatch *batch = queue.batches.empty() ? nullptr : queue.batches.back();
            if (!batch || !batch->takes(call) || !batch->calls.join(call.ready, i)) {
                batch = &batches_.emplace_back(call, comm_of(call));
                batch->calls.join(call.ready, i);
                queue.batches.push_back(batch);
            }
            queue.blocks |= blocks(call);
        }
        for (auto &[handle, queue] : queues)
            queue.is_host = !comms_.at(handle).comm().parts().device.gpu;
        return queues;
    }

    // The calls of one communicator follow one another, and so do those that are enqueued on one
    // stream. If some block, those of other communicators go on at the same time, because one
    // thread may have the ranks of several that wait for each other. Those of GPUs, whose runtimes
    // look at the thread, stay in this one.
    void run_collectives() {
        auto queues = make_queues();
        const bool is_alone =
            queues.size() == 1 || std::none_of(queues.begin(), queues.end(), [](const auto &each) {
                return each.second.is_host && each.second.blocks;
            });
        std::vector<qcclComm_t> apart;
        for (auto &[handle, queue] : queues)
            if (queue.is_host && !is_alone) apart.push_back(handle);
        for (CallBatch &batch : batches_) {
            const CallQueue &queue = queues.at(batch.handle);
            if (!batch.is_over && (is_alone || !queue.is_host)) run_here(batch, queue);
        }
        std::vector<QueueResult> results(apart.size());
        run_at_once(
            apart, [&](size_t i) { results[i] = run_queue(queues.at(apart[i])); },
            [&](size_t i, const Error &why) { results[i] = forgo(queues.at(apart[i]), why); });
        for (const QueueResult &result : results) note(result);
    }

    // After an error the later batches of the communicator are left out.
    void run_here(CallBatch &batch, const CallQueue &queue) {
        const QueueResult failure = run(batch);
        note(failure);
        if (failure)
            for (CallBatch *const each : queue.batches) each->is_over = true;
    }
    QueueResult run_queue(const CallQueue &queue) {
        QueueResult failure;
        for (CallBatch *const batch : queue.batches) {
            if (!failure) {
                await_turn(*batch);
                failure = run(*batch);
            }
            end_turn(*batch);
        }
        return failure;
    }
    QueueFailure forgo(const CallQueue &queue, const Error &why) {
        const FusedCall &fused = queue.batches.front()->calls.calls().front();
        const GroupedCall &begin = group_.calls_[fused.first()];
        const Error error = comm_of(begin).abandon(begin.collective, why);
        for (CallBatch *const batch : queue.batches) end_turn(*batch);
        return {&begin, error, of_fused_calls(fused, error)};
    }
    void end_turn(CallBatch &batch) {
        const std::lock_guard lock(turns_);
        batch.is_over = true;
        turn_ended_.notify_all();
    }
    // Other ranks, too, enqueue calls on a stream in the order in which the caller made them.
    // Otherwise one rank's stream could wait in one call and another rank's stream in the other.
    void await_turn(const CallBatch &batch) {
        if (qccl::blocks(batch.stream)) return;
        std::unique_lock lock(turns_);
        turn_ended_.wait(lock, [&] {
            for (const CallBatch &other : batches_) {
                if (&other == &batch) break;
                if (other.stream == batch.stream && !other.is_over) return false;
            }
            return true;
        });
    }
    Error of_fused_calls(const FusedCall &fused, const Error &error) const {
        const GroupedCall &begin = group_.calls_[fused.first()];
        return named(group_.name_of(begin, group_.calls_[fused.last()], fused.size()),
                     begin.collective, error);
    }

    QueueResult run(const CallBatch &batch) {
        size_t made = 0;
        for (const FusedCall &fused : batch.calls.calls()) {
            const GroupedCall &begin = group_.calls_[fused.first()];
            // Layers that follow one another in the list are neighbours in the group.
            const uint64_t before = begin.layer ? *begin.layer - made : 0;
            if (const Done done = run(begin, fused, before); !done)
                return QueueFailure{&begin, done.error(), of_fused_calls(fused, done.error())};
            made += fused.size();
        }
        return {};
    }

    Done run(const GroupedCall &first, const FusedCall &fused, uint64_t calls_before) {
        Comm &comm = comm_of(first);
        return run_or_abandon(comm, first.collective, [&]() -> Done {
            QCCL_TRY(const CallStream stream, take_call_stream(comm, first.stream));
            return fused.run(comm, stream, calls_before);
        });
    }

    CallGroup &group_;
    std::map<qcclComm_t, EnteredComm> comms_;
    std::optional<Error> error_;
    std::deque<CallBatch> batches_;
    std::mutex turns_; // protects CallBatch::is_over while several threads run batches
    std::condition_variable turn_ended_;
    GroupMessages messages_{
        [this](size_t i, const Done &done) { note(i, done); }}; // last: it waits
};

Done CallGroup::run() {
    if (refused_) return *refused_;
    if (calls_.empty()) return {};
    return exception_boundary([&] { return GroupRun(*this).run(); });
}

Done CallGroup::run_inside() {
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
