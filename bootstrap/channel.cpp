// Sockets and their buffers. Every call returns at once if the socket is not ready.
#include "bootstrap/channel.hpp"

#include "base/system_error.hpp"

#include <algorithm>
#include <cerrno>

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <unistd.h>

namespace qccl {

Socket::~Socket() {
    if (is_open()) shutdown(get(), SHUT_RDWR);
}

Result<Socket> make_socket(AddressFamily family) {
    const int domain = family == AddressFamily::ipv4 ? AF_INET : AF_INET6;
    Socket socket(::socket(domain, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (!socket.is_open()) return cannot("open a socket");
    return socket;
}

void tune(const Socket &socket) {
    // With these values the loss of a host is noticed after 10 + 4 * 5 = 30 s. TCP_USER_TIMEOUT is
    // not set: it would also end the connection to a process that is stopped and does not read.
    const auto set = [&](int level, int option, int value) {
        setsockopt(socket.get(), level, option, &value, sizeof value);
    };
    set(IPPROTO_TCP, TCP_NODELAY, 1);
    set(SOL_SOCKET, SO_KEEPALIVE, 1);
    set(IPPROTO_TCP, TCP_KEEPIDLE, 10);
    set(IPPROTO_TCP, TCP_KEEPINTVL, 5);
    set(IPPROTO_TCP, TCP_KEEPCNT, 4);
}

Channel::Filled Channel::fill(size_t bytes) {
    // The buffer grows only by what has arrived, so that a header that announces many bytes costs
    // nothing.
    static constexpr size_t most_at_once = 64 << 10;
    while (held_.size() < bytes) {
        const size_t before = held_.size();
        const size_t room = std::min(bytes - before, most_at_once);
        held_.resize(before + room);
        const ssize_t got = recv(socket_.get(), held_.data() + before, room, 0);
        held_.resize(before + static_cast<size_t>(std::max<ssize_t>(got, 0)));
        if (got > 0 || (got < 0 && errno == EINTR)) continue;
        return got < 0 && errno == EAGAIN ? Filled::not_yet : Filled::gone;
    }
    return Filled::all;
}

void Channel::drop(size_t bytes) {
    held_.erase(held_.begin(), held_.begin() + static_cast<std::ptrdiff_t>(bytes));
}

void Channel::queue(std::span<const std::byte> bytes) {
    queue(std::make_shared<const std::vector<std::byte>>(bytes.begin(), bytes.end()));
}

void Channel::queue(const Payload &payload) {
    if (!payload->empty()) output_.push_back(payload);
}

bool Channel::flush() {
    while (has_output()) {
        const std::vector<std::byte> &next = *output_.front();
        // Without MSG_NOSIGNAL, sending to a peer that has gone would kill this process with
        // SIGPIPE.
        const ssize_t sent =
            send(socket_.get(), next.data() + sent_, next.size() - sent_, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR) continue;
        if (sent < 0) return errno == EAGAIN;
        sent_ += static_cast<size_t>(sent);
        if (sent_ < next.size()) continue;
        output_.pop_front();
        sent_ = 0;
    }
    return true;
}

} // namespace qccl
