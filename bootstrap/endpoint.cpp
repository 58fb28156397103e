#include "bootstrap/endpoint.hpp"

#include <cerrno>
#include <cstring>
#include <memory>
#include <optional>
#include <set>

#include <arpa/inet.h>
#include <ifaddrs.h>
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
    text += is_ipv4 ? ":" : "]:";
    return text += std::to_string(endpoint.port);
}

static std::optional<Endpoint> parse_address(const std::string &text) {
    Endpoint endpoint;
    if (inet_pton(AF_INET, text.c_str(), endpoint.address.data()) == 1) return endpoint;
    endpoint.family = AddressFamily::ipv6;
    if (inet_pton(AF_INET6, text.c_str(), endpoint.address.data()) == 1) return endpoint;
    return std::nullopt;
}

// Smaller is better; nothing: of no use. Link-local addresses need a scope that differs per
// machine.
static std::optional<int> preference(const ifaddrs &entry) {
    if (!entry.ifa_addr || !(entry.ifa_flags & IFF_UP)) return std::nullopt;
    const int family = entry.ifa_addr->sa_family;
    if (family == AF_INET) return 0;
    if (family != AF_INET6) return std::nullopt;
    const auto *in = reinterpret_cast<const sockaddr_in6 *>(entry.ifa_addr);
    if (IN6_IS_ADDR_LINKLOCAL(&in->sin6_addr)) return std::nullopt;
    return 1;
}

Result<Endpoint> choose_endpoint(const std::string &interface) {
    if (const auto address = parse_address(interface)) {
        // Peers need an address that they can connect to.
        if (address->address == std::array<std::byte, 16>{})
            return Error::make(Code::invalid_argument, "\"%s\" is no address of one interface",
                               interface.c_str());
        return *address;
    }

    ifaddrs *list = nullptr;
    if (getifaddrs(&list) != 0)
        return Error::make(Code::system_error, "cannot list the network interfaces: %s",
                           strerror(errno));
    const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(list, freeifaddrs);

    std::optional<int> best;
    Endpoint chosen;
    std::set<std::string> names; // each once, however many addresses it has
    for (const ifaddrs *entry = list; entry; entry = entry->ifa_next) {
        const auto rating = preference(*entry);
        if (!rating) continue;
        names.insert(entry->ifa_name);
        // A bridge without a cable is up but not running.
        const bool is_usable =
            !(entry->ifa_flags & IFF_LOOPBACK) && (entry->ifa_flags & IFF_RUNNING);
        const bool is_asked_for = interface.empty() ? is_usable : interface == entry->ifa_name;
        if (!is_asked_for || (best && *best <= *rating)) continue;
        best = rating;
        chosen = to_endpoint(entry->ifa_addr);
        chosen.port = 0;
    }
    if (best) return chosen;
    if (interface.empty()) return *parse_address("127.0.0.1");
    std::string possible;
    for (const std::string &name : names)
        possible.append(possible.empty() ? "" : ", ").append(name);
    return Error::make(
        Code::invalid_argument,
        "\"%.40s\" is neither an address nor an interface that is up (there are: %s)",
        interface.c_str(), possible.c_str());
}

} // namespace qccl
