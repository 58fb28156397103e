// Random bytes from the kernel, and random names for Unix sockets. The names are in the abstract
// name space: such a socket has no file, and a process that has not been told its name cannot guess
// it. The bytes serve for cookies, names and session numbers; the exchange of descriptors and the
// socket bell use the names. Any thread may call; nothing blocks.
#pragma once

#include "base/result.hpp"

#include <array>
#include <cstddef>
#include <span>
#include <tuple>

#include <sys/socket.h>
#include <sys/un.h>

namespace qccl {

// ---- Random bytes

// Fills `bytes`, at most 256, which the kernel gives whole or not at all. Returns system_error on
// failure.
Done draw_bytes(std::span<std::byte> bytes);

// ---- Names of sockets

// Hexadecimal digits; sent to other ranks as plain bytes.
using AbstractName = std::array<char, 24>;
// Draws a name from the kernel's random numbers. Returns system_error if the kernel gives none.
Result<AbstractName> draw_name();

// The socket address of a name, for bind, connect and sendto.
class AbstractAddress {
public:
    static constexpr socklen_t bytes =
        offsetof(sockaddr_un, sun_path) + 1 + std::tuple_size_v<AbstractName>;

    explicit AbstractAddress(const AbstractName &name);
    const sockaddr *get() const { return reinterpret_cast<const sockaddr *>(&address_); }

private:
    sockaddr_un address_{};
};

} // namespace qccl
