// The messages of a group. Messages of one channel keep their order, and no message waits for one
// of another channel. The calling thread moves the messages of all channels on in turns, because
// handing them to other threads takes longer than moving them. When none has moved for a while, the
// rest goes to the channels' streams, but for the last channel's, whose waits are the caller's.
// CallGroup uses it, on the thread that has entered the communicators and opened the channels.
#pragma once

#include "api/call/collective_call.hpp"
#include "api/call/message_call.hpp"

#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

namespace qccl {

// Something that one stream has done and others wait for.
class StreamEvent;

class GroupMessages {
public:
    // Is told what became of the group's call of this number.
    using Report = std::function<void(size_t number, const Done &done)>;

    explicit GroupMessages(Report report) : report_(std::move(report)) {}
    GroupMessages(const GroupMessages &) = delete;
    // Waits for all messages that have begun: after an exception the caller frees its buffers, too.
    ~GroupMessages();

    // Checks the message for its channel. `message` lives as long as the group. An error is the
    // message's.
    Done add(size_t number, Comm &comm, const MessageArguments &message);
    // Moves messages on as long as that takes no wait, and hands the others to streams. Without
    // `has_more` the group waits for nothing but messages.
    void begin(bool has_more);
    // Lets the callers' streams wait for the messages. Called after all of the group has begun.
    void let_streams_wait();
    // Waits for the messages for which the group waits. A message that has begun is waited for also
    // if the communicator has failed meanwhile, because its channel moves it until it notices the
    // failure.
    void finish();

private:
    struct GroupedMessage {
        size_t number;
        Comm *comm;
        const MessageArguments *given;
        ReadyCall ready;

        bool blocks() const { return qccl::blocks(given->stream); }
    };
    struct MessageQueue {
        const PairChannel *channel;
        std::vector<GroupedMessage> messages{};
        size_t next = 0;       // the messages before it have run or are on the stream
        BegunCallRef moving{}; // the message `next`, if it is moving here

        bool is_done() const { return next == messages.size(); }
        const GroupedMessage &front() const { return messages[next]; }
        const Program &program() const { return *front().ready.program; }
        bool may_run_here() const;
        bool may_be_waited_for_here() const;
    };
    // A message that the group waits for, on its channel's stream.
    struct Begun {
        const GroupedMessage *message;
        StreamRef stream;
    };
    struct WaitForMessage {
        const GroupedMessage *message;
        std::shared_ptr<Comm> channel;
        std::shared_ptr<StreamEvent> end;
    };

    MessageQueue &queue_of(const PairChannel &channel);
    size_t waiting() const;
    void settle(const GroupedMessage &message, const Done &done);
    void run_here(MessageQueue &queue);
    void begin_here(MessageQueue &queue);
    bool start_front(MessageQueue &queue);
    bool move_on(MessageQueue &queue);
    bool move_front(MessageQueue &queue);
    void move_while_ready(bool has_more);
    void hand_over(MessageQueue &queue);
    Done finish_on_stream(const MessageQueue &queue);
    Done enqueue(const MessageQueue &queue, const GroupedMessage &message);

    const Report report_;
    std::vector<MessageQueue> queues_; // by channel; none is added after the first has begun
    std::vector<WaitForMessage> waits_;
    std::vector<Begun> begun_;
};

} // namespace qccl
