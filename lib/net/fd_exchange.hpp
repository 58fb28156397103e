// Passes file descriptors among the processes of one host: every rank gives two descriptors and
// gets those of all ranks. The lowest rank is the server, to which the other ranks connect. The
// server's socket has a random abstract name, so that it appears in no file system, and accepts
// only processes of the same user that know the cookie. Used at the creation of the shm transport.
// `serve` and `join` block, until their deadline at the latest.
//
// The descriptors travel in pairs as messages over local sockets (SCM_RIGHTS). One packet is one
// message, which arrives whole or not at all. `await` and `send_fds` block, until their deadline at
// the latest; `receive_fds` does not block.
#pragma once

#include "base/clock.hpp"
#include "base/random_names.hpp"
#include "base/result.hpp"
#include "base/system.hpp"

#include <array>
#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace qccl {

// ---- Messages with descriptors

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

// ---- Server and client

// What a rank needs to reach the server. Travels as bytes.
struct FdExchangeAddress {
    AbstractName name{};
    FdCookie cookie{};
};

// The server, which is the first of a host's ranks. `ranks` holds the numbers of the host's ranks
// in the communicator, in the order in which descriptors are returned.
class FdExchangeServer {
public:
    // Makes the socket, which listens from now on.
    static Result<FdExchangeServer> open();
    const FdExchangeAddress &address() const { return address_; }

    // Waits for all other ranks and sends each of them the descriptors of all ranks, which are also
    // returned. `timeout` bounds the whole exchange. The error (timeout, system_error, or that of
    // `cancel_check`) names a rank that has not connected by the deadline or does not read what it
    // is sent, or says that no descriptor is free. Unknown processes are turned away and delay no
    // rank.
    Result<std::vector<FdPair>> serve(FdPair mine, std::span<const uint32_t> ranks,
                                      std::chrono::nanoseconds timeout,
                                      const CancelCheck &cancel_check = {});

private:
    FileDescriptor listener_;
    FdExchangeAddress address_;
};

// The client, which is every other rank. A rank opens its client before the server waits for it, so
// that it needs no further descriptor to connect.
class FdExchangeClient {
public:
    static Result<FdExchangeClient> open();
    // Sends `mine` to the server at `server` and returns the descriptors of all ranks, in the order
    // of `ranks`. `place` is this rank's index in `ranks`. Errors: peer_lost if the server has
    // left, timeout, system_error.
    Result<std::vector<FdPair>> join(const FdExchangeAddress &server, uint32_t place,
                                     std::span<const uint32_t> ranks, FdPair mine,
                                     std::chrono::nanoseconds timeout);

private:
    FileDescriptor connection_;
};

} // namespace qccl
