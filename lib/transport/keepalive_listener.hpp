// The listening side of keepalive connections: a rank listens at a port of each of its addresses
// for the ranks of other hosts that watch whether it lives. Used at the creation of a transport
// over several hosts; KeepaliveConnector accepts the connections. Does not block.
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

// An IPv4 or IPv6 address in the system's form; smaller than sockaddr_storage.
union InetAddress {
    sockaddr_in6 ipv6{};
    sockaddr_in ipv4;
    sockaddr any;

    bool is_there() const { return any.sa_family != AF_UNSPEC; }
    socklen_t bytes() const { return any.sa_family == AF_INET6 ? sizeof ipv6 : sizeof ipv4; }
};

// How to reach a rank's listener. Travels as bytes.
struct KeepaliveAddress {
    static constexpr size_t most_addresses = 8;

    std::array<InetAddress, most_addresses> addresses; // valid ones come first
    // The connecting rank sends `cookie`, which shows that it was given this address. The listening
    // rank replies with `answer`, which shows that it is the rank that was meant.
    std::array<std::byte, 16> cookie{}, answer{};
};

class KeepaliveListener {
public:
    KeepaliveListener() = default;
    // Listens at those of `addresses` that are this machine's, up to `most_addresses`, at free
    // ports. Returns system_error if it can listen at none.
    static Result<KeepaliveListener> open(std::span<const sockaddr_storage> addresses);

    const KeepaliveAddress &contact() const { return contact_; }
    const std::vector<FileDescriptor> &listeners() const { return listeners_; }

private:
    Done listen_at(const sockaddr_storage &address);

    std::vector<FileDescriptor> listeners_;
    KeepaliveAddress contact_;
};

} // namespace qccl
