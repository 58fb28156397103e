// Sends and receives pairs of file descriptors as messages over local sockets (SCM_RIGHTS). One
// packet is one message, which arrives whole or not at all. Used by the exchange of descriptors.
// `await` and `send_fds` block, until their deadline at the latest; `receive_fds` does not block.
#pragma once

#include "base/deadline.hpp"
#include "base/file_descriptor.hpp"

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

namespace qccl {

using FdPair = std::array<FileDescriptor, 2>;
using FdCookie = std::array<std::byte, 16>;

// The kernel takes up to 253 descriptors in one message.
inline constexpr uint32_t pairs_per_message = 64;

// The data of a message. To the server: `first` is the sender's index, and the message carries its
// one pair. From the server: the message carries the pairs of the ranks from index `first` on.
struct FdMessage {
    FdCookie cookie{};
    uint32_t first = 0;
    uint32_t pairs = 0;
};

struct ReceivedFds {
    FdMessage message;
    std::vector<FdPair> pairs;
};

// The pause between two attempts at an operation for which poll cannot wait.
inline constexpr auto retry_pause = std::chrono::milliseconds(1);
// Waits for poll's `events` on the connection. Returns false if the deadline has passed.
bool await(const FileDescriptor &connection, short events, TimePoint deadline);

// Sends a message with its pairs. Returns 0 or an errno: EAGAIN if the other end does not read what
// it has been sent, ETOOMANYREFS if too many descriptors that this user has sent, to any process,
// are not received yet.
int send_fds(const FileDescriptor &connection, const FdMessage &message, const FdPair *pairs,
             TimePoint deadline);

// Receives a message. If it returns nothing, errno holds the reason: EAGAIN if no message has come,
// EPROTO if the packet is no message with this cookie, ECONNRESET at the end of the connection,
// EMFILE if no descriptor is free.
std::optional<ReceivedFds> receive_fds(const FileDescriptor &connection, const FdCookie &cookie);

} // namespace qccl
