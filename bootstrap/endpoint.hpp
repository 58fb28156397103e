// Where somebody listens: an IPv4 or IPv6 address and a port. Knows no connections.
#pragma once

#include "base/result.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include <sys/socket.h>

namespace qccl {

enum class AddressFamily : uint16_t { ipv4 = 4, ipv6 = 6 };

struct Endpoint {
    AddressFamily family = AddressFamily::ipv4;
    uint16_t port = 0;
    std::array<std::byte, 16> address{}; // network order; IPv4 fills the first four

    bool is_same_host(const Endpoint &other) const {
        return family == other.family && address == other.address;
    }
};

struct SocketAddress {
    sockaddr_storage storage{};
    socklen_t bytes = 0;

    sockaddr *get() { return reinterpret_cast<sockaddr *>(&storage); }
    const sockaddr *get() const { return reinterpret_cast<const sockaddr *>(&storage); }
};

SocketAddress to_socket_address(const Endpoint &endpoint);
Endpoint to_endpoint(const sockaddr *address); // AF_INET or AF_INET6
std::string text(const Endpoint &endpoint);    // "10.0.0.1:4711", "[::1]:4711"

// An address of this machine, port 0. `interface` is an interface's name or an address; empty:
// the first interface that is up and not the loopback, IPv4 before IPv6, else the loopback.
Result<Endpoint> choose_endpoint(const std::string &interface);

} // namespace qccl
