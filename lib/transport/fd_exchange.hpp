// Passes file descriptors among the processes of one host: every rank gives two descriptors and
// gets those of all ranks. The lowest rank is the server, to which the other ranks connect. The
// server's socket has a random abstract name, so that it appears in no file system, and accepts
// only processes of the same user that know the cookie. Used at the creation of the shm transport.
// `serve` and `join` block, until their deadline at the latest.
#pragma once

#include "base/cancel_check.hpp"
#include "base/result.hpp"
#include "transport/abstract_name.hpp"
#include "transport/fd_message.hpp"

#include <chrono>
#include <cstdint>
#include <span>
#include <vector>

namespace qccl {

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
    // Sends `mine` to the server at `star` and returns the descriptors of all ranks, in the order
    // of `ranks`. `place` is this rank's index in `ranks`. Errors: peer_lost if the server has
    // left, timeout, system_error.
    Result<std::vector<FdPair>> join(const FdExchangeAddress &server, uint32_t place,
                                     std::span<const uint32_t> ranks, FdPair mine,
                                     std::chrono::nanoseconds timeout);

private:
    FileDescriptor connection_;
};

} // namespace qccl
