// Connections between ranks of different hosts that carry nothing and show that the other end
// lives. Each rank listens at a port of its own and lets in whom it has given its cookie. Knows not
// who needs whom.
#pragma once

#include "base/deadline.hpp"
#include "base/file_descriptor.hpp"
#include "base/result.hpp"

#include <array>
#include <cstdint>

#include <sys/socket.h>

namespace qccl {

// How to reach a rank. Travels as bytes.
struct LifeContact {
    sockaddr_storage address{};
    socklen_t bytes = 0;
    std::array<std::byte, 16> cookie{};
};

class LifePort {
public:
    LifePort() = default;
    // Listens at that address, at a port that is free.
    static Result<LifePort> open(const sockaddr_storage &address);
    const LifeContact &contact() const { return contact_; }

    // The connection that `rank` has made.
    Result<FileDescriptor> admit(uint32_t rank, TimePoint deadline) const;

private:
    FileDescriptor listener_;
    LifeContact contact_;
};

// Presents itself as `own_rank` to `rank`.
Result<FileDescriptor> connect_life(const LifeContact &contact, uint32_t own_rank, uint32_t rank,
                                    TimePoint deadline);
// From now on the connection breaks when the other host has been silent for so long.
void watch_life(const FileDescriptor &connection, std::chrono::nanoseconds silence);

} // namespace qccl
