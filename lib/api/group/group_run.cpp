// Enters all communicators of a group, makes the channels that its messages need, begins the
// messages, runs the collectives, and waits where the caller named no stream.
#include "api/group/group_run.hpp"

#include "api/group/call_fusion.hpp"
#include "api/group/entered_comm.hpp"
#include "api/group/group_messages.hpp"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <list>
#include <map>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace qccl {

namespace {

class GroupRun {
public:
    explicit GroupRun(const GroupedCalls &group) : group_(group) {}
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
    // On a GPU no stream is the default one.
    bool blocks(const GroupedCall &call) const {
        return comm_of(call).parts().device.gpu ? call.stream == QCCL_STREAM_SYNC
                                                : qccl::blocks(call.stream);
    }
    Comm &comm_of(const GroupedCall &call) const { return comms_.at(call.handle).comm(); }

    // Notes what became of a call. The communicator can be asked for its error later; the group
    // returns the first one.
    void note(size_t i, const Done &done) {
        if (done) return;
        const GroupedCall &call = group_.calls[i];
        note(call, done.error(), group_.named(call, done.error()));
    }
    void note(const GroupedCall &call, const Error &error, const Error &of_group) {
        comm_of(call).note(error);
        if (!error_) error_ = of_group;
    }
    void abandon_all(const Error &why) {
        for (size_t i = 0; i < group_.calls.size(); i++)
            note(i, comm_of(group_.calls[i]).abandon(group_.calls[i].collective, why));
    }

    void make_calls() {
        open_channels();
        size_t collectives = 0;
        for (size_t i = 0; i < group_.calls.size(); i++) {
            const GroupedCall &call = group_.calls[i];
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

    // Calls work(i) for each of these communicators, in a thread of its own, which is the one
    // inside meanwhile, and here() in this thread, all at the same time. Calls forgo(i, error)
    // where no thread can be had. None of them lets an exception out.
    template <class Work, class Forgo, class Here>
    void run_at_once(std::span<const qcclComm_t> handles, Work work, Forgo forgo, Here here) {
        {
            std::vector<std::jthread> threads;
            threads.reserve(handles.size());
            for (size_t i = 0; i < handles.size(); i++) {
                const Done started = exception_boundary([&]() -> Done {
                    threads.emplace_back([&work, i, &entered = comms_.at(handles[i])] {
                        entered.take_over();
                        work(i);
                    });
                    return {};
                });
                if (!started) forgo(i, started.error());
            }
            here();
        }
        for (const qcclComm_t handle : handles) comms_.at(handle).take_over();
    }

    Done enter() {
        qcclComm_t last = nullptr;
        for (const GroupedCall &call : group_.calls) {
            if (call.handle == last || comms_.contains(call.handle)) continue;
            QCCL_TRY(EnteredComm entered, group_.is_inside ? EnteredComm::of_caller(call.handle)
                                                           : EnteredComm::enter(call.handle));
            comms_.emplace(call.handle, std::move(entered));
            last = call.handle;
        }
        return {};
    }

    // Calls before that of a state in use would have been made. On a GPU a call takes its state
    // when its stream has come to it.
    Done check_states() const {
        for (const GroupedCall &call : group_.calls) {
            const FeedbackState *const state = call.ready.request.state.get();
            if (!state || comm_of(call).parts().device.gpu || !state->is_used()) continue;
            const Error error = StateUse::is_used_already();
            comm_of(call).note(error);
            return group_.named(call, error);
        }
        return {};
    }

    // All ranks make their channels in the order of their peers, so that no ranks wait for each
    // other in a circle. Communicators do not wait for each other: their ranks may be in this
    // thread.
    void open_channels() {
        std::map<qcclComm_t, std::map<int, size_t>> peers; // with the first call for each
        for (size_t i = 0; i < group_.calls.size(); i++)
            if (const GroupedCall &call = group_.calls[i]; call.message)
                peers[call.handle].emplace(call.message->peer, i);
        std::vector<qcclComm_t> handles;
        std::vector<CallResult> results;
        for (const auto &[handle, calls] : peers) {
            handles.push_back(handle);
            results.push_back({.number = calls.begin()->second});
        }
        if (handles.empty()) return;
        const auto open = [&](size_t i) { open_channels(peers.at(handles[i]), results[i]); };
        run_at_once(
            std::span(handles).first(handles.size() - 1), open,
            [&](size_t i, const Error &error) { forgo(results[i], error); },
            [&] { open(handles.size() - 1); });
        for (const CallResult &result : results) note(result.number, result.done);
    }

    // What became of some calls: the first of them that failed, if one has.
    struct CallResult {
        size_t number;
        Done done{};
    };

    void open_channels(const std::map<int, size_t> &calls, CallResult &result) {
        for (const auto &[peer, i] : calls) {
            const GroupedCall &call = group_.calls[i];
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
        const GroupedCall &call = group_.calls[result.number];
        result.done = comm_of(call).abandon(call.collective, why);
    }

    Done add_message(size_t i) {
        const GroupedCall &call = group_.calls[i];
        Comm &comm = comm_of(call);
        return settle_message(comm, *call.message, messages_.add(i, comm, *call.message));
    }

    // The first call of a batch that failed, its error, and that of the group.
    struct BatchFailure {
        const GroupedCall *call;
        Error error, of_group;
    };
    using BatchResult = std::optional<BatchFailure>;

    struct CallBatch;
    // The batches of one communicator. After an error the later ones are left out.
    struct CallQueue {
        std::vector<CallBatch *> batches{};
        bool blocks = false; // at least one batch does
        BatchResult failure{};
    };
    // Collectives of one communicator and one stream.
    struct CallBatch {
        CallBatch(const GroupedCall &begin, const Comm &comm, CallQueue &of_comm, bool does_block)
            : first(begin), stream(begin.stream), queue(of_comm),
              is_of_gpu(comm.parts().device.gpu), blocks(does_block),
              calls(comm,
                    begin.layer ? FusionBatch::Calls::are_apart : FusionBatch::Calls::keep_order) {}

        // Layers touch none but their own part of the vectors, so their order does not matter.
        bool takes(const GroupedCall &call) const {
            if (stream != call.stream) return false;
            return first.layer || call.layer ? call.is_layer_of(first) : true;
        }
        bool may_begin() const {
            return (!before || before->is_over) && (!before_on_stream || before_on_stream->is_over);
        }
        // Among batches some of which block.
        bool is_for_caller() const { return !blocks && (is_of_gpu || !queue.blocks); }
        bool may_wait_for_others() const {
            return (before && !before->is_for_caller()) ||
                   (before_on_stream && !before_on_stream->is_for_caller());
        }

        const GroupedCall &first;
        const qcclStream_t stream;
        CallQueue &queue;
        const bool is_of_gpu, blocks;
        FusionBatch calls;
        // Null: there is none, or the batch blocks and has no stream.
        const CallBatch *before = nullptr, *before_on_stream = nullptr;
        bool is_over = false; // has run, or is left out
    };

    // Handles mean a stream to a GPU, or to the hosts (its name is empty).
    using StreamName = std::pair<std::string, qcclStream_t>;
    using LatestBatches = std::map<StreamName, const CallBatch *>;

    CallBatch &begin_batch(const GroupedCall &call, CallQueue &queue, LatestBatches &on_streams) {
        const Comm &comm = comm_of(call);
        CallBatch &batch = batches_.emplace_back(call, comm, queue, blocks(call));
        if (!queue.batches.empty()) batch.before = queue.batches.back();
        if (!batch.blocks) {
            const Gpu *const gpu = comm.parts().device.gpu.get();
            const CallBatch *&latest = on_streams[{gpu ? gpu->traits().name : "", batch.stream}];
            batch.before_on_stream = std::exchange(latest, &batch);
        }
        queue.batches.push_back(&batch);
        queue.blocks |= batch.blocks;
        return batch;
    }

    // Fills queues_, and batches_ in the order of their first calls.
    void make_queues() {
        LatestBatches on_streams;
        std::pair<const qcclComm_t, CallQueue> *latest = nullptr; // calls of one follow one another
        for (size_t i = 0; i < group_.calls.size(); i++) {
            const GroupedCall &call = group_.calls[i];
            if (!call.is_collective()) continue;
            if (!latest || latest->first != call.handle)
                latest = &*queues_.try_emplace(call.handle).first;
            CallQueue &queue = latest->second;
            CallBatch *const batch = queue.batches.empty() ? nullptr : queue.batches.back();
            if (!batch || !batch->takes(call) || !batch->calls.join(call.ready, i))
                begin_batch(call, queue, on_streams).calls.join(call.ready, i);
        }
    }

    // The calls of one communicator follow one another, and so do those that are enqueued on one
    // stream. If some block, those of other communicators go on at the same time, because one
    // thread may have the ranks of several that wait for each other.
    void run_collectives() {
        make_queues();
        std::vector<qcclComm_t> blocking;
        for (const auto &[handle, queue] : queues_)
            if (queue.blocks) blocking.push_back(handle);
        if (queues_.size() == 1 || blocking.empty()) {
            for (CallBatch &batch : batches_)
                if (!batch.is_over) run_in_turn(batch);
        } else {
            run_side_by_side(blocking);
        }
        note_failures();
    }

    // Calls on streams of GPUs are for this thread, because a GPU's runtime looks at it: it may be
    // in a capture, and may have a stream of its own. Unless they wait for calls that block, this
    // thread then blocks, too: idle functions look for signals on it.
    void run_side_by_side(const std::vector<qcclComm_t> &blocking) {
        std::list<CallBatch *> enqueued;
        for (CallBatch &batch : batches_)
            if (batch.is_for_caller()) enqueued.push_back(&batch);
        const bool may_wait = std::ranges::any_of(enqueued, &CallBatch::may_wait_for_others);
        const auto run = [&](size_t i) { run_queue(queues_.at(blocking[i])); };
        const size_t threads = may_wait ? blocking.size() : blocking.size() - 1;
        run_at_once(
            std::span(blocking).first(threads), run,
            [&](size_t i, const Error &why) { forgo(queues_.at(blocking[i]), why); },
            [&] {
                enqueue(enqueued);
                if (threads < blocking.size()) run(threads);
            });
    }
    // Runs the batches of the queue that are not for the calling thread of the group.
    void run_queue(const CallQueue &queue) {
        for (CallBatch *const batch : queue.batches) {
            {
                std::unique_lock lock(turns_);
                turn_ended_.wait(lock, [&] {
                    return batch->is_over || (!batch->is_for_caller() && batch->may_begin());
                });
                if (batch->is_over) continue;
            }
            comms_.at(batch->first.handle).take_over();
            run_in_turn(*batch);
        }
    }
    // Other ranks, too, enqueue calls on a stream in the order in which the caller made them.
    // Otherwise one rank's stream could wait in one call and another rank's stream in the other.
    void enqueue(std::list<CallBatch *> &left) {
        std::unique_lock lock(turns_);
        while (true) {
            left.remove_if([](const CallBatch *batch) { return batch->is_over; });
            if (left.empty()) return;
            const auto next = std::ranges::find_if(left, &CallBatch::may_begin);
            if (next == left.end()) {
                turn_ended_.wait(lock);
                continue;
            }
            lock.unlock();
            comms_.at((*next)->first.handle).take_over();
            run_in_turn(**next);
            lock.lock();
        }
    }
    void run_in_turn(CallBatch &batch) {
        BatchResult failure = run(batch);
        const std::lock_guard lock(turns_);
        batch.is_over = true;
        if (failure) fail(batch.queue, *failure);
        turn_ended_.notify_all();
    }
    void forgo(CallQueue &queue, const Error &why) {
        const FusedCall &fused = queue.batches.front()->calls.calls().front();
        const GroupedCall &begin = group_.calls[fused.first()];
        const Error error = comm_of(begin).abandon(begin.collective, why);
        const std::lock_guard lock(turns_);
        fail(queue, {&begin, error, of_fused_calls(fused, error)});
        turn_ended_.notify_all();
    }
    static void fail(CallQueue &queue, const BatchFailure &failure) {
        queue.failure = failure;
        for (CallBatch *const batch : queue.batches) batch->is_over = true;
    }
    void note_failures() {
        std::vector<const BatchFailure *> failures;
        for (const auto &[handle, queue] : queues_)
            if (queue.failure) failures.push_back(&*queue.failure);
        std::ranges::sort(failures, {}, [](const auto *failure) { return failure->call->number; });
        for (const BatchFailure *const each : failures)
            note(*each->call, each->error, each->of_group);
    }
    Error of_fused_calls(const FusedCall &fused, const Error &error) const {
        const GroupedCall &begin = group_.calls[fused.first()];
        return group_.named(begin, group_.calls[fused.last()], fused.size(), error);
    }

    BatchResult run(const CallBatch &batch) {
        size_t made = 0;
        for (const FusedCall &fused : batch.calls.calls()) {
            const GroupedCall &begin = group_.calls[fused.first()];
            // Layers that follow one another in the list are neighbours in the group.
            const uint64_t before = begin.layer ? *begin.layer - made : 0;
            if (const Done done = run(begin, fused, before); !done)
                return BatchFailure{&begin, done.error(), of_fused_calls(fused, done.error())};
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

    const GroupedCalls &group_;
    std::map<qcclComm_t, EnteredComm> comms_;
    std::optional<Error> error_;
    std::map<qcclComm_t, CallQueue> queues_;
    std::deque<CallBatch> batches_;
    std::mutex turns_; // protects what becomes of batches and queues while threads run them
    std::condition_variable turn_ended_;
    GroupMessages messages_{
        [this](size_t i, const Done &done) { note(i, done); }}; // last: it waits
};

} // namespace

Done run_group(const GroupedCalls &group) {
    return exception_boundary([&] { return GroupRun(group).run(); });
}

} // namespace qccl
