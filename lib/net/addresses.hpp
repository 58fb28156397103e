// Addresses of sockets. There are endpoints, which are IPv4 or IPv6 addresses with a port, their
// conversion to and from socket addresses and text, and the choice of this machine's endpoints by
// the names of its network interfaces. The bootstrap uses endpoints to name where the rendezvous
// listens; the bootstrap and communicator creation choose the addresses at which the ranks meet.
// The choice reads the list of interfaces. Any thread may call; nothing waits for other processes.
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

// ---- Endpoints

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

// ---- Endpoints of this machine

// Returns addresses of interfaces that are up, best first. `wanted` is a list, separated by commas,
// of interface names, beginnings of such names, and addresses. With a leading '^' it lists what is
// not to be used; an entry with a leading '=' stands for that exact name only. Empty: all
// interfaces but the loopback, which is used only if there is no other. Link-local addresses are
// used if their interface is listed or if there is no other address. Errors: invalid_argument,
// whose text names the setting QCCL_SOCKET_IFNAME; system_error.
Result<std::vector<Endpoint>> choose_endpoints(const std::string &wanted);

// Returns the names of the interfaces that have one of these addresses, each once.
std::vector<std::string> interfaces_with(const std::vector<Endpoint> &endpoints);

// Returns the endpoints in the form in which this machine can reach them: a link-local address
// without a scope appears once for each interface that may lead to its network.
std::vector<Endpoint> reachable(const std::vector<Endpoint> &endpoints);

} // namespace qccl
