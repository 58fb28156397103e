// Nonblocking sockets: whatever a stranger does or does not do, a rank waits no longer than for its
// deadline.
#include "transport/life_port.hpp"

#include "transport/random_bytes.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <thread>
#include <vector>

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>

namespace qccl {

namespace {

using Clock = std::chrono::steady_clock;

struct Greeting {
    std::array<std::byte, 16> cookie;
    uint32_t rank;
};

constexpr size_t most_silent = 64;

socklen_t address_bytes(const sockaddr_storage &address) {
    return address.ss_family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
}

Result<FileDescriptor> make_socket(int family) {
    FileDescriptor made(socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!made.is_open()) return cannot("make a socket");
    return made;
}

} // namespace

Result<LifePort> LifePort::open(const sockaddr_storage &address) {
    LifePort port;
    LifeContact &contact = port.contact_;
    contact.address = address;
    contact.bytes = address_bytes(address);
    QCCL_TRY(draw_bytes(contact.cookie));
    QCCL_TRY(port.listener_, make_socket(address.ss_family));
    auto *const bound = reinterpret_cast<sockaddr *>(&contact.address);
    const int listener = port.listener_.number();
    if (bind(listener, bound, contact.bytes) != 0) return cannot("bind a socket");
    if (listen(listener, SOMAXCONN) != 0) return cannot("listen on a socket");
    if (getsockname(listener, bound, &contact.bytes) != 0) return cannot("name a socket");
    return port;
}

Result<FileDescriptor> LifePort::admit(uint32_t rank, TimePoint deadline) const {
    std::vector<FileDescriptor> silent;
    for (;;) {
        std::vector<pollfd> polls{{listener_.number(), POLLIN, 0}};
        for (const FileDescriptor &one : silent) polls.push_back({one.number(), POLLIN, 0});
        if (poll(polls.data(), polls.size(), poll_timeout_ms(Clock::now(), deadline)) <= 0 &&
            Clock::now() >= deadline)
            return Error::make(Code::timeout, "rank %u did not connect from its host", rank)
                .at_rank(rank);
        for (size_t i = polls.size() - 1; i > 0; i--) {
            if (polls[i].revents == 0) continue;
            FileDescriptor guest = std::move(silent[i - 1]);
            silent.erase(silent.begin() + static_cast<ptrdiff_t>(i) - 1);
            Greeting greeting{};
            const ssize_t got = recv(guest.number(), &greeting, sizeof greeting, MSG_DONTWAIT);
            if (got == sizeof greeting && greeting.cookie == contact_.cookie &&
                greeting.rank == rank)
                return guest;
        }
        if (polls[0].revents == 0) continue;
        FileDescriptor guest(
            accept4(listener_.number(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
        if (!guest.is_open()) continue;
        if (silent.size() >= most_silent) silent.erase(silent.begin());
        silent.push_back(std::move(guest));
    }
}

Result<FileDescriptor> connect_life(const LifeContact &contact, uint32_t own_rank, uint32_t rank,
                                    TimePoint deadline) {
    QCCL_TRY(FileDescriptor connection, make_socket(contact.address.ss_family));
    const auto *const address = reinterpret_cast<const sockaddr *>(&contact.address);
    int problem = connect(connection.number(), address, contact.bytes) == 0 ? 0 : errno;
    if (problem == EINPROGRESS || problem == EINTR) {
        pollfd one{connection.number(), POLLOUT, 0};
        socklen_t bytes = sizeof problem;
        problem = ETIMEDOUT;
        if (poll(&one, 1, poll_timeout_ms(Clock::now(), deadline)) > 0)
            getsockopt(connection.number(), SOL_SOCKET, SO_ERROR, &problem, &bytes);
    }
    const Greeting greeting{contact.cookie, own_rank};
    if (problem == 0 && send(connection.number(), &greeting, sizeof greeting, MSG_NOSIGNAL) !=
                            static_cast<ssize_t>(sizeof greeting))
        problem = errno;
    if (problem == 0) return connection;
    return Error::make(Code::peer_lost, "cannot reach the host of rank %u: %s", rank,
                       std::strerror(problem))
        .at_rank(rank);
}

void watch_life(const FileDescriptor &connection, std::chrono::nanoseconds silence) {
    using std::chrono::duration_cast;
    const auto set = [&](int level, int option, int64_t value) {
        const int clamped = static_cast<int>(std::clamp<int64_t>(value, 1, INT32_MAX));
        setsockopt(connection.number(), level, option, &clamped, sizeof clamped);
    };
    // Questions begin early enough for several to go unanswered, and the silence decides.
    const int64_t seconds = duration_cast<std::chrono::seconds>(silence).count();
    set(SOL_SOCKET, SO_KEEPALIVE, 1);
    set(IPPROTO_TCP, TCP_KEEPIDLE, seconds / 4);
    set(IPPROTO_TCP, TCP_KEEPINTVL, seconds / 8);
    set(IPPROTO_TCP, TCP_KEEPCNT, 64);
    set(IPPROTO_TCP, TCP_USER_TIMEOUT, duration_cast<std::chrono::milliseconds>(silence).count());
}

} // namespace qccl
