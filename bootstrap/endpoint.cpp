// Endpoints as socket addresses and as text, by the functions of the C library.
#include "bootstrap/endpoint.hpp"

#include <cstring>

#include <arpa/inet.h>
#include <net/if.h>
#include <netinet/in.h>

namespace qccl {

SocketAddress to_socket_address(const Endpoint &endpoint) {
    SocketAddress address;
    if (endpoint.family == AddressFamily::ipv4) {
        sockaddr_in in{};
        in.sin_family = AF_INET;
        in.sin_port = htons(endpoint.port);
        std::memcpy(&in.sin_addr, endpoint.address.data(), sizeof in.sin_addr);
        std::memcpy(&address.storage, &in, sizeof in);
        address.bytes = sizeof in;
    } else {
        sockaddr_in6 in{};
        in.sin6_family = AF_INET6;
        in.sin6_port = htons(endpoint.port);
        in.sin6_scope_id = endpoint.scope;
        std::memcpy(&in.sin6_addr, endpoint.address.data(), sizeof in.sin6_addr);
        std::memcpy(&address.storage, &in, sizeof in);
        address.bytes = sizeof in;
    }
    return address;
}

Endpoint to_endpoint(const sockaddr *address) {
    Endpoint endpoint;
    if (address->sa_family == AF_INET) {
        const auto *in = reinterpret_cast<const sockaddr_in *>(address);
        endpoint.port = ntohs(in->sin_port);
        std::memcpy(endpoint.address.data(), &in->sin_addr, sizeof in->sin_addr);
    } else {
        const auto *in = reinterpret_cast<const sockaddr_in6 *>(address);
        endpoint.family = AddressFamily::ipv6;
        endpoint.port = ntohs(in->sin6_port);
        endpoint.scope = in->sin6_scope_id;
        std::memcpy(endpoint.address.data(), &in->sin6_addr, sizeof in->sin6_addr);
    }
    return endpoint;
}

std::string text(const Endpoint &endpoint) {
    char name[INET6_ADDRSTRLEN] = {};
    const bool is_ipv4 = endpoint.family == AddressFamily::ipv4;
    inet_ntop(is_ipv4 ? AF_INET : AF_INET6, endpoint.address.data(), name, sizeof name);
    std::string text = is_ipv4 ? "" : "[";
    text += name;
    char interface[IF_NAMESIZE] = {};
    if (endpoint.scope != 0 && if_indextoname(endpoint.scope, interface))
        text.append("%").append(interface);
    text += is_ipv4 ? ":" : "]:";
    return text += std::to_string(endpoint.port);
}

std::string text(const std::vector<Endpoint> &endpoints) {
    static constexpr size_t most_named = 2;
    const size_t named = endpoints.size() > most_named + 1 ? most_named : endpoints.size();
    std::string all;
    for (size_t i = 0; i < named; i++)
        all += (i == 0 ? "" : i + 1 == endpoints.size() ? " or " : ", ") + text(endpoints[i]);
    if (named < endpoints.size())
        all += " or " + std::to_string(endpoints.size() - named) + " more";
    return all;
}

std::optional<Endpoint> parse_address(const std::string &text) {
    Endpoint endpoint;
    if (inet_pton(AF_INET, text.c_str(), endpoint.address.data()) == 1) return endpoint;
    endpoint.family = AddressFamily::ipv6;
    const size_t mark = text.find('%');
    if (inet_pton(AF_INET6, text.substr(0, mark).c_str(), endpoint.address.data()) != 1)
        return std::nullopt;
    if (mark == std::string::npos) return endpoint;
    endpoint.scope = if_nametoindex(text.substr(mark + 1).c_str());
    return endpoint.scope != 0 ? std::optional(endpoint) : std::nullopt;
}

bool is_link_local(const Endpoint &endpoint) {
    return endpoint.family == AddressFamily::ipv6 && endpoint.address[0] == std::byte{0xfe} &&
           (endpoint.address[1] & std::byte{0xc0}) == std::byte{0x80};
}

bool is_unspecified(const Endpoint &endpoint) {
    return endpoint.address == std::array<std::byte, 16>{};
}

} // namespace qccl
