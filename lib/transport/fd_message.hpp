// Pairs of file descriptors in messages over local sockets: one packet is one message, whole or not
// at all. Knows not who sends them to whom.
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

// To the middle: `first` is the sender, which brings one pair. From it: pairs of ranks from `first`
// on.
struct FdMessage {
    FdCookie cookie{};
    uint32_t first = 0;
    uint32_t pairs = 0;
};

struct ReceivedFds {
    FdMessage message;
    std::vector<FdPair> pairs;
};

// Between two attempts at what nobody can wait for with poll.
inline constexpr auto retry_pause = std::chrono::milliseconds(1);
// Waits for poll's `events`. False: the deadline is over.
bool await(const FileDescriptor &connection, short events, TimePoint deadline);

// 0, or the reason why not: EAGAIN where the other end does not read what it has, ETOOMANYREFS
// where too much that this user has sent to anybody is not received.
int send_fds(const FileDescriptor &connection, const FdMessage &message, const FdPair *pairs,
             TimePoint deadline);

// Does not wait. Nothing: errno says why. EPROTO where it is no message of ours, ECONNRESET at the
// connection's end, EMFILE where no descriptor is free.
std::optional<ReceivedFds> receive_fds(const FileDescriptor &connection, const FdCookie &cookie);

} // namespace qccl
