// Polls the channels of the calling thread's messages, and hands to streams what has to wait.
#include "api/group/group_messages.hpp"

#include "base/exception_boundary.hpp"

#include <algorithm>
#include <chrono>
#include <future>
#include <thread>
#include <utility>

namespace qccl {

class StreamEvent {
public:
    std::function<Done()> set() const {
        return [set = set_]() -> Done {
            set->set_value();
            return {};
        };
    }
    std::function<Done()> wait() const {
        return [done = done_]() -> Done {
            done.wait();
            return {};
        };
    }

private:
    const std::shared_ptr<std::promise<void>> set_ = std::make_shared<std::promise<void>>();
    const std::shared_future<void> done_ = set_->get_future().share();
};

// As long as a peer that makes the same group now may take to answer. Beyond it threads cost less.
static constexpr std::chrono::microseconds longest_poll{50};

GroupMessages::~GroupMessages() {
    for (const Begun &each : begun_) (void)each.stream->synchronize();
}

Done GroupMessages::add(size_t number, Comm &comm, const MessageArguments &message) {
    QCCL_TRY(const PairChannel channel, open_channel(comm, message));
    CallArguments given = arguments_of(channel, message);
    given.stream = nullptr;
    QCCL_TRY(ReadyCall ready, find_ready(*channel.comm, given));
    queue_of(channel).messages.push_back({number, &comm, &message, std::move(ready)});
    return {};
}

GroupMessages::MessageQueue &GroupMessages::queue_of(const PairChannel &channel) {
    const auto found = std::ranges::find_if(
        queues_, [&](const MessageQueue &queue) { return queue.channel.comm == channel.comm; });
    if (found != queues_.end()) return *found;
    return queues_.emplace_back(MessageQueue{channel});
}

// A message on a stream of the caller's waits for that stream.
bool GroupMessages::MessageQueue::may_run_here() const {
    return !is_done() && front().blocks() && front().ready.program->fast_path &&
           channel.comm->is_free_on_host() && channel.comm->parts().policy.hosts == 1;
}

bool GroupMessages::MessageQueue::can_run_at_once() const {
    return may_run_here() && channel.comm->can_run_at_once(*front().ready.program);
}

bool GroupMessages::MessageQueue::may_be_waited_for_here() const {
    return !is_done() && channel.comm->is_free_on_host() &&
           std::all_of(messages.begin() + static_cast<ptrdiff_t>(next), messages.end(),
                       [](const GroupedMessage &message) { return message.blocks(); });
}

size_t GroupMessages::waiting() const {
    return static_cast<size_t>(
        std::ranges::count_if(queues_, [](const MessageQueue &queue) { return !queue.is_done(); }));
}

void GroupMessages::settle(const GroupedMessage &message, const Done &done) {
    report_(message.number, settle_message(*message.comm, *message.given, done));
}

void GroupMessages::run_here(MessageQueue &queue) {
    const GroupedMessage &message = queue.messages[queue.next++];
    settle(message, exception_boundary([&] {
               return queue.channel.comm->run(message.ready.program, message.ready.request, {});
           }));
}

// Returns whether a message has run.
bool GroupMessages::run_ready() {
    bool has_run = false;
    for (MessageQueue &queue : queues_)
        while (queue.can_run_at_once()) {
            run_here(queue);
            has_run = true;
        }
    return has_run;
}

void GroupMessages::run_while_ready(bool has_more) {
    const auto may_run = [](const MessageQueue &queue) { return queue.may_run_here(); };
    bool is_idle = false;
    std::chrono::steady_clock::time_point idle_since{};
    while (true) {
        if (run_ready()) is_idle = false;
        if ((waiting() <= 1 && !has_more) || std::ranges::none_of(queues_, may_run)) return;
        const auto now = std::chrono::steady_clock::now();
        if (!std::exchange(is_idle, true)) idle_since = now;
        if (now - idle_since > longest_poll) return;
        std::this_thread::yield();
    }
}

void GroupMessages::begin(bool has_more) {
    run_while_ready(has_more);
    MessageQueue *last = nullptr;
    if (!has_more)
        for (MessageQueue &queue : queues_)
            if (queue.may_be_waited_for_here()) last = &queue;
    for (MessageQueue &queue : queues_)
        if (&queue != last) begin_all(queue);
    while (last && !last->is_done()) run_here(*last);
}

void GroupMessages::begin_all(MessageQueue &queue) {
    for (; !queue.is_done(); queue.next++)
        if (const Done begun = enqueue(queue, queue.front()); !begun) settle(queue.front(), begun);
}

// Messages of one channel follow one another on its stream.
Done GroupMessages::enqueue(const MessageQueue &queue, const GroupedMessage &message) {
    const PairChannel &channel = queue.channel;
    CallStream own;
    QCCL_TRY(own.host, channel.stream->get());
    if (message.comm->parts().device.gpu) {
        own.host->enqueue({.run = [made = channel.comm, ready = message.ready] {
            return made->run(ready.program, ready.request, {});
        }});
        begun_.push_back({&message, std::move(own.host)});
        return {};
    }
    QCCL_TRY(const StreamRef callers, take_stream(message.given->stream));
    const StreamEvent begin;
    const auto end = std::make_shared<StreamEvent>();
    if (callers) {
        callers->enqueue({.run = begin.set()});
        own.host->enqueue({.run = begin.wait()});
    }
    const Done enqueued = channel.comm->run(message.ready.program, message.ready.request, own);
    if (callers) {
        own.host->enqueue({.run = end->set()});
        waits_.push_back({&message, channel.comm, end});
    }
    if (message.blocks()) begun_.push_back({&message, std::move(own.host)});
    return enqueued;
}

void GroupMessages::let_streams_wait() {
    for (const WaitForMessage &each : waits_) {
        const auto callers = take_stream(each.message->given->stream);
        if (!callers) continue; // the caller has destroyed it
        (*callers)->enqueue(
            {.run = [end = each.end, channel = each.channel, comm = each.message->comm,
                     given = *each.message->given]() -> Done {
                QCCL_TRY(end->wait()());
                if (const auto failure = channel->failure())
                    return settle_message(*comm, given, failure->error);
                return {};
            }});
    }
}

void GroupMessages::finish() {
    for (const Begun &each : begun_) settle(*each.message, each.stream->synchronize());
    begun_.clear();
}

} // namespace qccl
