// One message between two ranks: the checks of its arguments, the channel on which it runs, and
// what an error of the channel means for the communicator. The C functions that send and receive
// use it, and so do groups, on the thread that is inside the communicator. The first message
// between two ranks blocks until the peer makes their channel, too; move_message blocks as the call
// does.
#pragma once

#include "api/call/collective_call.hpp"
#include "api/call/entry.hpp"
#include "comm/comm.hpp"
#include "comm/pair_channels.hpp"

#include <functional>

namespace qccl {

// One end of a message, as C passes it.
struct MessageArguments {
    const char *peer_name = "peer"; // as the header calls it
    const char *count_name = "count";
    Buffer buffer{};
    size_t count = 0;
    int peer = 0;
    bool sends = false;
    qcclDataType_t type = qcclFloat32;
    qcclStream_t stream = nullptr;
    const qcclCollConfig_t *config = nullptr;
};

// Checks what can be checked without the channel, so that a wrong call does not wait for the peer.
// Returns the buffer with its bytes.
Result<Buffer> check_message(const Comm &comm, const MessageArguments &given);
// The same for a message to another rank, with its config.
Done check_message_to_other(Comm &comm, const MessageArguments &given);
// The same for a message that may go on beside others.
Done check_message_of_group(Comm &comm, const MessageArguments &given);
// The same for two messages, of which one is sent and the other received. Returns what makes a copy
// instead, if both peers are this rank: it copies, or enqueues that on a stream of the host. It may
// be called while the communicator and the buffers exist.
Result<std::function<Done()>> check_both(Comm &comm, const MessageArguments &to,
                                         const MessageArguments &from);

// Returns the channel of the message. Null: there is none yet, the message is wrong, or the
// communicator has failed.
const PairChannel *find_channel(Comm &comm, const MessageArguments &given);
// Returns the channel of the message, and makes it if there is none. An error that is no refusal
// has failed the communicator.
Result<const PairChannel *> open_channel(Comm &comm, const MessageArguments &given);
// The message as a call of its channel.
CallArguments arguments_of(const PairChannel &channel, const MessageArguments &given);
// Returns what became of the message. An error of the channel that is no refusal fails the
// communicator, and its sentence says which ranks the channel's ranks are. Of a channel that was
// revoked it waits a second at most for the failure of the communicator.
Done settle_failed_message(Comm &comm, const MessageArguments &given, const Done &done);
inline Done settle_message(Comm &comm, const MessageArguments &given, const Done &done) {
    return done ? done : settle_failed_message(comm, given, done);
}
// Moves one message. An error that is no refusal has failed the communicator.
Done move_message(Comm &comm, const MessageArguments &given);

} // namespace qccl
