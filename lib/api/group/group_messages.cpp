// Moves the messages of all channels on in turns, and hands to streams what has to wait for long.
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

// The thread polls, and yields, as long as a rank that waits for one message yields before it
// sleeps.
static constexpr std::chrono::milliseconds longest_poll{1};

GroupMessages::~GroupMessages() {
    for (MessageQueue &queue : queues_)
        if (queue.moving) (void)queue.channel->comm->finish(*queue.moving);
    for (const Begun &each : begun_) (void)each.stream->synchronize();
}

Done GroupMessages::add(size_t number, Comm &comm, const MessageArguments &message) {
    QCCL_TRY(const PairChannel *const channel, open_channel(comm, message));
    CallArguments given = arguments_of(*channel, message);
    given.stream = nullptr;
    QCCL_TRY(ReadyCall ready, find_ready(*channel->comm, given));
    queue_of(*channel).messages.push_back({number, &comm, &message, std::move(ready)});
    return {};
}

GroupMessages::MessageQueue &GroupMessages::queue_of(const PairChannel &channel) {
    const auto found = std::ranges::find_if(
        queues_, [&](const MessageQueue &queue) { return queue.channel == &channel; });
    if (found != queues_.end()) return *found;
    return queues_.emplace_back(MessageQueue{&channel});
}

// A message on a stream of the caller's waits for that stream.
bool GroupMessages::MessageQueue::may_run_here() const {
    if (moving) return true;
    return !is_done() && front().blocks() && channel->comm->is_free_on_host();
}

bool GroupMessages::MessageQueue::may_be_waited_for_here() const {
    return !is_done() && channel->comm->is_free_on_host() &&
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

// Runs the front message to its end.
void GroupMessages::run_here(MessageQueue &queue) {
    const GroupedMessage &message = queue.messages[queue.next++];
    const BegunCallRef moving = std::exchange(queue.moving, nullptr);
    settle(message, exception_boundary([&] {
               return moving
                          ? queue.channel->comm->finish(*moving)
                          : queue.channel->comm->run(message.ready.program, message.ready.request);
           }));
}

void GroupMessages::begin_here(MessageQueue &queue) {
    const ReadyCall &ready = queue.front().ready;
    auto begun = exception_boundary(
        [&] { return queue.channel->comm->begin(ready.program, ready.request); });
    if (begun)
        queue.moving = std::move(*begun);
    else
        settle(queue.messages[queue.next++], begun.error());
}

// Returns whether the message has moved. If it has ended, the next one is in front.
bool GroupMessages::move_front(MessageQueue &queue) {
    const auto moved = queue.channel->comm->move_on(*queue.moving);
    if (moved && !queue.moving->has_ended()) return *moved;
    queue.moving.reset();
    settle(queue.messages[queue.next++], outcome(moved));
    return true;
}

// Runs or begins the message if that takes no wait, and returns whether it has.
bool GroupMessages::start_front(MessageQueue &queue) {
    const Comm &channel = *queue.channel->comm;
    if (channel.can_run_at_once(queue.program()))
        run_here(queue);
    else if (channel.can_begin(queue.program()))
        begin_here(queue);
    else
        return false;
    return true;
}

// Moves the messages of the channel as far as that takes no wait. Returns whether any has moved.
bool GroupMessages::move_on(MessageQueue &queue) {
    bool has_moved = false;
    while (queue.may_run_here() && (queue.moving ? move_front(queue) : start_front(queue)))
        has_moved = true;
    return has_moved;
}

void GroupMessages::move_while_ready(bool has_more) {
    bool is_idle = false;
    std::chrono::steady_clock::time_point idle_since{};
    while (true) {
        bool has_moved = false, may_run = false;
        for (MessageQueue &queue : queues_) {
            has_moved |= move_on(queue);
            const bool may_go_on = queue.may_run_here();
            may_run |= may_go_on;
            if (!may_go_on && (waiting() > 1 || has_more)) hand_over(queue);
        }
        if ((waiting() <= 1 && !has_more) || !may_run) return;
        if (has_moved) {
            is_idle = false;
            continue;
        }
        const auto now = std::chrono::steady_clock::now();
        if (!std::exchange(is_idle, true)) idle_since = now;
        if (now - idle_since > longest_poll) return;
        std::this_thread::yield();
    }
}

void GroupMessages::begin(bool has_more) {
    move_while_ready(has_more);
    MessageQueue *last = nullptr;
    if (!has_more)
        for (MessageQueue &queue : queues_)
            if (queue.may_be_waited_for_here()) last = &queue;
    for (MessageQueue &queue : queues_)
        if (&queue != last) hand_over(queue);
    while (last && !last->is_done()) run_here(*last);
}

void GroupMessages::hand_over(MessageQueue &queue) {
    for (; !queue.is_done(); queue.next++) {
        const bool is_moving = queue.moving != nullptr;
        const Done begun = is_moving ? finish_on_stream(queue) : enqueue(queue, queue.front());
        queue.moving.reset();
        if (!begun) settle(queue.front(), begun);
    }
}

Done GroupMessages::finish_on_stream(const MessageQueue &queue) {
    Comm &channel = *queue.channel->comm;
    auto own = queue.channel->stream->get();
    if (!own) return channel.abandon(Collective::send, own.error());
    CallStream stream;
    stream.host = std::move(*own);
    QCCL_TRY(channel.finish_on(queue.moving, stream));
    begun_.push_back({&queue.front(), std::move(stream.host)});
    return {};
}

// Messages of one channel follow one another on its stream.
Done GroupMessages::enqueue(const MessageQueue &queue, const GroupedMessage &message) {
    const PairChannel &channel = *queue.channel;
    CallStream own;
    QCCL_TRY(own.host, channel.stream->get());
    if (message.comm->parts().device.gpu) {
        own.host->enqueue({.run = [made = channel.comm, ready = message.ready] {
            return made->run(ready.program, ready.request);
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
        Comm &comm = *each.message->comm;
        MessageArguments kept = *each.message->given;
        kept.config = nullptr; // which the caller may free
        (*callers)->enqueue({.run = [end = each.end, channel = each.channel,
                                     self = comm.shared_from_this(), kept]() -> Done {
                                 QCCL_TRY(end->wait()());
                                 if (const auto failure = channel->failure())
                                     return settle_message(*self, kept, failure->error);
                                 return {};
                             },
                             .told = comm.told_flag()});
    }
}

void GroupMessages::finish() {
    for (const Begun &each : begun_) settle(*each.message, each.stream->synchronize());
    begun_.clear();
}

} // namespace qccl
