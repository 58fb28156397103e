// Checks a message, finds its channel, and runs it there as a call of the channel's two ranks.
#include "api/call/message_call.hpp"

#include "base/exception_boundary.hpp"

#include <algorithm>
#include <chrono>
#include <cinttypes>
#include <cstring>
#include <thread>

namespace qccl {

static Done check_peer(const Comm &comm, const MessageArguments &given) {
    if (given.peer >= 0 && static_cast<uint32_t>(given.peer) < comm.size()) return {};
    return invalid_argument("%s is %d, but the ranks are 0 to %" PRIu32, given.peer_name,
                            given.peer, comm.size() - 1)
        .compared(comm.size() - 1, given.peer);
}

Result<Buffer> check_message(const Comm &comm, const MessageArguments &given) {
    QCCL_TRY(check_peer(comm, given));
    QCCL_TRY(const DataType type, take_type(given.type));
    QCCL_TRY(check_count(given.count_name, given.count, type, 1));
    Buffer buffer = given.buffer;
    buffer.bytes = given.count * type_bytes(type);
    QCCL_TRY(check_pointer(buffer));
    return buffer;
}

static Done check_other(const Comm &comm, const MessageArguments &given) {
    QCCL_TRY(check_peer(comm, given));
    if (static_cast<uint32_t>(given.peer) != comm.rank()) return {};
    return invalid_argument("%s is %d, this rank itself; qcclSendRecv copies values within a rank",
                            given.peer_name, given.peer);
}

// The channel's call has the same config and finds the same mistakes in it, but only when there is
// a channel.
static Done check_config_of(Comm &comm, const MessageArguments &given) {
    return check_config(comm, {.collective = Collective::send,
                               .count_name = given.count_name,
                               .count = given.count,
                               .type = given.type,
                               .config = given.config});
}

Done check_message_to_other(Comm &comm, const MessageArguments &given) {
    QCCL_TRY(check_other(comm, given));
    QCCL_TRY(outcome(check_message(comm, given)));
    return check_config_of(comm, given);
}

Done check_message_of_group(Comm &comm, const MessageArguments &given) {
    QCCL_TRY(take_call_stream(comm, given.stream));
    if (comm.parts().device.gpu && given.stream != QCCL_STREAM_SYNC)
        return invalid_argument("stream is %p, but in a group messages of a GPU's communicator "
                                "need QCCL_STREAM_SYNC",
                                given.stream);
    return check_message_to_other(comm, given);
}

static Done check_copy(const Comm &comm, const Buffer &send, const Buffer &recv) {
    if (send.bytes != recv.bytes)
        return invalid_argument(
            "recv_count is not send_count, but dest and source are rank %" PRIu32 " itself",
            comm.rank());
    if (!comm.parts().device.gpu) return {};
    return invalid_argument("dest and source are rank %" PRIu32 " itself, whose memory is of "
                            "%s; the device's own copy moves values within a rank",
                            comm.rank(), comm.parts().device.gpu->traits().name.c_str());
}

Result<std::function<Done()>> check_both(Comm &comm, const MessageArguments &to,
                                         const MessageArguments &from) {
    QCCL_TRY(const Buffer send, check_message(comm, to));
    QCCL_TRY(const Buffer recv, check_message(comm, from));
    QCCL_TRY(check_apart(send, recv));
    const bool is_self = static_cast<uint32_t>(to.peer) == comm.rank();
    if (is_self != (static_cast<uint32_t>(from.peer) == comm.rank()))
        return invalid_argument("dest is %d and source is %d, but if one is this rank, both are",
                                to.peer, from.peer);
    if (!is_self) return std::function<Done()>();
    QCCL_TRY(check_copy(comm, send, recv));
    QCCL_TRY(outcome(take_stream(to.stream)));
    const auto copy = [=]() -> Done {
        if (send.bytes != 0) std::memcpy(const_cast<void *>(recv.start), send.start, send.bytes);
        return {};
    };
    QCCL_TRY(check_config_of(comm, to));
    // On a host stream the copy waits for its turn.
    return std::function<Done()>([&comm, copy, handle = to.stream]() -> Done {
        if (comm.has_failed()) return comm.abandon(Collective::send, comm.failure()->error);
        QCCL_TRY(const StreamRef stream, take_stream(handle));
        if (!stream) return copy();
        stream->enqueue({.run = copy});
        return {};
    });
}

CallArguments arguments_of(const PairChannel &channel, const MessageArguments &given) {
    CallArguments call{.collective = Collective::send,
                       .count = given.count,
                       .type = given.type,
                       .root = static_cast<int>(channel.root),
                       .stream = given.stream,
                       .config = given.config};
    if (given.sends)
        call.send = given.buffer.start;
    else
        call.recv = const_cast<void *>(given.buffer.start);
    return call;
}

// How long the ranks of a new channel wait for each other.
static Result<std::chrono::nanoseconds> patience_of(const Comm &comm,
                                                    const MessageArguments &given) {
    QCCL_TRY(const qcclCollConfig_t config, take_config(given.config));
    QCCL_TRY(const auto timeout, take_timeout("timeout", config.timeout));
    return timeout.value_or(comm.parts().timeout);
}

Result<const PairChannel *> open_channel(Comm &comm, const MessageArguments &given) {
    if (comm.has_failed()) return comm.abandon(Collective::send, comm.failure()->error);
    const auto peer = static_cast<uint32_t>(given.peer);
    if (const PairChannel *const channel = comm.pairs().find(peer, given.sends)) return channel;
    QCCL_TRY(const auto timeout, patience_of(comm, given));
    auto channel = comm.pairs().open(peer, given.sends, timeout);
    if (channel) return channel;
    return comm.abandon(Collective::send,
                        reworded(channel.error(), "rank %" PRIu32 " %s rank %" PRIu32 ": %.420s",
                                 comm.rank(), given.sends ? "sends to" : "receives from", peer,
                                 channel.error().text));
}

// A rank revokes its channels when the communicator has failed, and the peer may hear of that
// before it hears of the failure itself.
static void await_failure(const Comm &comm) {
    using namespace std::chrono;
    for (const auto end = steady_clock::now() + seconds(1);
         !comm.failure() && steady_clock::now() < end;)
        std::this_thread::sleep_for(microseconds(200));
}

Done settle_failed_message(Comm &comm, const MessageArguments &given, const Done &done) {
    if (is_refusal(done.error())) return done;
    if (done.error().code == Code::revoked) await_failure(comm);
    return comm.abandon(Collective::send,
                        comm.pairs().in_own_ranks(static_cast<uint32_t>(given.peer), done.error()));
}

// The stream's thread tells the communicator what became of the message.
static Done enqueue_message(Comm &comm, const PairChannel &channel, const MessageArguments &given) {
    QCCL_TRY(CallStream stream, take_call_stream(*channel.comm, given.stream));
    MessageArguments kept = given;
    kept.config = nullptr; // which the caller may free
    stream.settle = [self = comm.shared_from_this(), kept](const Done &done) {
        return settle_message(*self, kept, done);
    };
    stream.told = comm.told_flag();
    QCCL_TRY(const ReadyCall ready, find_ready(*channel.comm, arguments_of(channel, given)));
    return channel.comm->run(ready.program, ready.request, stream);
}

const PairChannel *find_channel(Comm &comm, const MessageArguments &given) {
    const auto peer = static_cast<uint32_t>(given.peer);
    if (peer == comm.rank() || comm.has_failed()) return nullptr;
    return comm.pairs().find(peer, given.sends);
}

Done move_message(Comm &comm, const MessageArguments &given) {
    // What can be wrong with the message besides its peer, the call on the channel finds, too.
    const PairChannel *channel = find_channel(comm, given);
    if (!channel) [[unlikely]] {
        QCCL_TRY(check_message_to_other(comm, given));
        QCCL_TRY(channel, open_channel(comm, given));
    }
    const bool is_enqueued = !blocks(given.stream) && !comm.parts().device.gpu;
    const Done done = exception_boundary([&] {
        return is_enqueued ? enqueue_message(comm, *channel, given)
                           : run_call(*channel->comm, arguments_of(*channel, given));
    });
    return settle_message(comm, given, done);
}

} // namespace qccl
