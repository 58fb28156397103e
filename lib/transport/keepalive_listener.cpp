// Opens the listening sockets for keepalive connections.
#include "transport/keepalive_listener.hpp"

#include "base/system_error.hpp"
#include "transport/random_bytes.hpp"

#include <cstring>

namespace qccl {

Result<KeepaliveListener> KeepaliveListener::open(std::span<const sockaddr_storage> addresses) {
    KeepaliveListener port;
    QCCL_TRY(draw_bytes(port.contact_.cookie));
    QCCL_TRY(draw_bytes(port.contact_.answer));
    Done done = Error::make(Code::system_error, "no address to listen at");
    for (const sockaddr_storage &address : addresses)
        if (port.listeners_.size() < KeepaliveAddress::most_addresses)
            done = port.listen_at(address);
    if (port.listeners_.empty()) return done.error();
    return port;
}

Done KeepaliveListener::listen_at(const sockaddr_storage &address) {
    InetAddress bound;
    std::memcpy(&bound.ipv6, &address, sizeof bound.ipv6);
    FileDescriptor listener(
        socket(address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!listener.is_open()) return cannot("make a socket");
    socklen_t bytes = bound.bytes();
    if (bind(listener.number(), &bound.any, bytes) != 0) return cannot("bind a socket");
    if (listen(listener.number(), SOMAXCONN) != 0) return cannot("listen on a socket");
    if (getsockname(listener.number(), &bound.any, &bytes) != 0) return cannot("name a socket");
    contact_.addresses[listeners_.size()] = bound;
    listeners_.push_back(std::move(listener));
    return {};
}

} // namespace qccl
