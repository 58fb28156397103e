// Converts endpoints by the functions of the C library. Reads the network interfaces with
// getifaddrs() and matches them with the user's list.
#include "net/addresses.hpp"

#include "base/system.hpp"
#include "base/text.hpp"

#include <algorithm>
#include <cstring>
#include <memory>
#include <set>

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>

namespace qccl {

// ---- Endpoints

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

// ---- Endpoints of this machine

namespace {

struct Interface {
    std::string name;
    bool is_loopback = false;
    bool is_running = false; // a bridge without a cable is up but not running
    Endpoint address;

    bool is_usable() const { return is_running && !is_loopback; }
    // Lower is better.
    int rating() const {
        return address.family == AddressFamily::ipv4 ? 0 : is_link_local(address) ? 2 : 1;
    }
};

// An interface appears once for each of its addresses.
Result<std::vector<Interface>> interfaces_that_are_up() {
    ifaddrs *list = nullptr;
    if (getifaddrs(&list) != 0) return cannot("list the network interfaces");
    const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(list, freeifaddrs);
    std::vector<Interface> found;
    for (const ifaddrs *entry = list; entry; entry = entry->ifa_next) {
        if (!entry->ifa_addr || !(entry->ifa_flags & IFF_UP)) continue;
        const int family = entry->ifa_addr->sa_family;
        if (family != AF_INET && family != AF_INET6) continue;
        Endpoint address = to_endpoint(entry->ifa_addr);
        address.port = 0;
        found.push_back({entry->ifa_name, (entry->ifa_flags & IFF_LOOPBACK) != 0,
                         (entry->ifa_flags & IFF_RUNNING) != 0, address});
    }
    return found;
}

std::vector<std::string> items_of(const std::string &list) {
    std::vector<std::string> items;
    for (size_t from = 0; from < list.size();) {
        const size_t end = std::min(list.find(',', from), list.size());
        if (end > from) items.push_back(list.substr(from, end - from));
        from = end + 1;
    }
    return items;
}

// An item that is the name of an interface means that one only; any other item is the beginning of
// names. So "eth1" does not mean "eth10" if both exist.
bool is_meant(const std::string &item, const Interface &one, const std::vector<Interface> &all) {
    if (item.starts_with('=')) return one.name == item.substr(1);
    const bool is_a_name = std::any_of(
        all.begin(), all.end(), [&item](const Interface &other) { return other.name == item; });
    return is_a_name ? one.name == item : one.name.starts_with(item);
}

void append_best_first(std::vector<Interface> some, std::vector<Endpoint> &chosen) {
    std::stable_sort(some.begin(), some.end(), [](const Interface &a, const Interface &b) {
        return a.rating() < b.rating();
    });
    for (const Interface &one : some) {
        const auto is_same = [&one](const Endpoint &other) {
            return other.is_same_host(one.address) && other.scope == one.address.scope;
        };
        if (std::none_of(chosen.begin(), chosen.end(), is_same)) chosen.push_back(one.address);
    }
}

template <class Predicate>
std::vector<Interface> those(const std::vector<Interface> &all, Predicate is_one) {
    std::vector<Interface> some;
    std::copy_if(all.begin(), all.end(), std::back_inserter(some), is_one);
    return some;
}

Error no_interface(const std::string &wanted, const std::vector<Interface> &all) {
    std::set<std::string> names; // each once; an interface may have several addresses
    for (const Interface &one : all) names.insert(one.name);
    const std::string possible = listed({names.begin(), names.end()});
    return invalid_argument("QCCL_SOCKET_IFNAME: \"%.40s\" %s (there are: %.100s)", wanted.c_str(),
                            wanted.starts_with('^') ? "leaves no interface that is up"
                            : wanted.find(',') == std::string::npos
                                ? "is neither an address nor an interface that is up"
                                : "names neither an address nor an interface that is up",
                            possible.c_str());
}

// Keeps the order of the list: a user who writes "ib0,eth0" wants ib0 first.
Result<std::vector<Endpoint>> those_listed(const std::string &wanted,
                                           const std::vector<Interface> &all) {
    std::vector<Endpoint> chosen;
    for (const std::string &item : items_of(wanted)) {
        if (item.starts_with('^'))
            return invalid_argument(
                "QCCL_SOCKET_IFNAME: \"%.40s\": ^ stands before the whole list, and once",
                wanted.c_str());
        const auto address = parse_address(item);
        // Peers need an address that they can connect to.
        if (address && is_unspecified(*address))
            return invalid_argument("QCCL_SOCKET_IFNAME: \"%.40s\" is no address of one interface",
                                    item.c_str());
        if (address)
            chosen.push_back(*address);
        else
            append_best_first(
                those(all, [&](const Interface &one) { return is_meant(item, one, all); }), chosen);
    }
    return chosen;
}

} // namespace

Result<std::vector<Endpoint>> choose_endpoints(const std::string &wanted) {
    QCCL_TRY(const std::vector<Interface> all, interfaces_that_are_up());
    std::vector<Endpoint> chosen;
    if (!wanted.empty() && !wanted.starts_with('^')) {
        QCCL_TRY(chosen, those_listed(wanted, all));
        if (chosen.empty()) return no_interface(wanted, all);
        return chosen;
    }
    const std::vector<std::string> unwanted = items_of(wanted.empty() ? "" : wanted.substr(1));
    append_best_first(those(all,
                            [&](const Interface &one) {
                                const auto is_one = [&](const std::string &item) {
                                    return is_meant(item, one, all);
                                };
                                return one.is_usable() &&
                                       std::none_of(unwanted.begin(), unwanted.end(), is_one);
                            }),
                      chosen);
    const auto end = std::remove_if(chosen.begin(), chosen.end(), is_link_local);
    if (end != chosen.begin()) chosen.erase(end, chosen.end());
    if (!chosen.empty()) return chosen;
    if (!wanted.empty()) return no_interface(wanted, all);
    return std::vector{*parse_address("127.0.0.1")};
}

std::vector<std::string> interfaces_with(const std::vector<Endpoint> &endpoints) {
    std::set<std::string> names;
    if (const auto all = interfaces_that_are_up())
        for (const Interface &one : *all)
            if (std::ranges::any_of(endpoints, [&](const Endpoint &endpoint) {
                    return endpoint.is_same_host(one.address) &&
                           endpoint.scope == one.address.scope;
                }))
                names.insert(one.name);
    return {names.begin(), names.end()};
}

std::vector<Endpoint> reachable(const std::vector<Endpoint> &endpoints) {
    std::vector<Endpoint> found;
    std::vector<uint32_t> scopes;
    if (const auto all = interfaces_that_are_up())
        for (const Interface &one : *all)
            if (!one.is_loopback && is_link_local(one.address)) scopes.push_back(one.address.scope);
    for (const Endpoint &endpoint : endpoints) {
        if (!is_link_local(endpoint) || endpoint.scope != 0) {
            found.push_back(endpoint);
            continue;
        }
        for (const uint32_t scope : scopes) {
            found.push_back(endpoint);
            found.back().scope = scope;
        }
    }
    return found;
}

} // namespace qccl
