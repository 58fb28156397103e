// An endpoint: an IPv4 or IPv6 address with a port, and its conversion to and from socket addresses
// and text. The bootstrap uses it to name where the rendezvous listens. Any thread may call the
// functions; none of them blocks.
#pragma once

#include "base/result.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <sys/socket.h>

namespace qccl {

enum class AddressFamily : uint16_t { ipv4 = 4, ipv6 = 6 };

struct Endpoint {
    AddressFamily family = AddressFamily::ipv4;
    uint16_t port = 0;
    std::array<std::byte, 16> address{}; // network byte order; IPv4 uses the first four
    uint32_t scope = 0; // index of a link-local address's interface on this machine; 0: none

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
// "10.0.0.1:4711, [fd00::1]:4711 or 2 more"
std::string text(const std::vector<Endpoint> &endpoints);

// Parses an address in its usual notation, with a scope if it has one: "10.0.0.1", "fe80::1%eth0".
// Returns nothing if the text is no address, or if its scope names no interface of this machine.
std::optional<Endpoint> parse_address(const std::string &text);
bool is_link_local(const Endpoint &endpoint); // IPv6 only; such an address needs a scope
bool is_unspecified(const Endpoint &endpoint);

} // namespace qccl
