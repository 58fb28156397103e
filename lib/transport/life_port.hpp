// Where a rank waits for the ranks of other hosts that are to see whether it lives: a port at each
// of its addresses. Knows neither who comes nor who needs whom.
#pragma once

#include "base/file_descriptor.hpp"
#include "base/result.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <netinet/in.h>
#include <sys/socket.h>

namespace qccl {

// Of IPv4 or IPv6, as the system has it, in no more room than that takes.
union LifeAddress {
    sockaddr_in6 ipv6{};
    sockaddr_in ipv4;
    sockaddr any;

    bool is_there() const { return any.sa_family != AF_UNSPEC; }
    socklen_t bytes() const { return any.sa_family == AF_INET6 ? sizeof ipv6 : sizeof ipv4; }
};

// How to reach a rank. Travels as bytes.
struct LifeContact {
    static constexpr size_t most_addresses = 8;

    std::array<LifeAddress, most_addresses> addresses; // those that are there come first
    // Who says the first knows the rank's contact; who answers with the second is the rank.
    std::array<std::byte, 16> cookie{}, answer{};
};

class LifePort {
public:
    LifePort() = default;
    // Listens at those of the addresses that are this machine's, at ports that are free.
    static Result<LifePort> open(std::span<const sockaddr_storage> addresses);

    const LifeContact &contact() const { return contact_; }
    const std::vector<FileDescriptor> &listeners() const { return listeners_; }

private:
    Done listen_at(const sockaddr_storage &address);

    std::vector<FileDescriptor> listeners_;
    LifeContact contact_;
};

} // namespace qccl
