// Names of local sockets that lie in no file system: drawn at random, so that nobody comes upon one
// who has not been told it. Knows not what the sockets are for.
#pragma once

#include "base/result.hpp"

#include <array>
#include <cstddef>

#include <sys/socket.h>
#include <sys/un.h>

namespace qccl {

// Hexadecimal digits. Travels as bytes.
using AbstractName = std::array<char, 24>;
Result<AbstractName> draw_name();

// Where a socket of that name is bound and reached.
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
