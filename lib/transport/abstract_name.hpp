// Random names for Unix sockets in the abstract name space. Such a socket has no file, and a
// process that has not been told its name cannot guess it. Used by the exchange of descriptors and
// by the socket bell; any thread may call it.
#pragma once

#include "base/result.hpp"

#include <array>
#include <cstddef>

#include <sys/socket.h>
#include <sys/un.h>

namespace qccl {

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
