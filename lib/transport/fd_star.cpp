// The star over sequenced-packet sockets: one packet is one message, whole or not at all.
#include "transport/fd_star.hpp"

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <optional>
#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>

namespace qccl {

namespace {

using Clock = std::chrono::steady_clock;
using Time = std::chrono::nanoseconds;

// The kernel takes up to 253 descriptors in one message.
constexpr uint32_t pairs_per_message = 64;
// Accepted connections that have said nothing yet, beyond the ranks'.
constexpr size_t silent_strangers = 64;

// To the middle: `first` is the sender, which brings one pair. From it: pairs of ranks from `first`
// on.
struct Message {
    std::array<std::byte, 16> cookie{};
    uint32_t first = 0;
    uint32_t pairs = 0;
};

Error failed(const char *what) {
    return Error::make(Code::system_error, "cannot %s: %s", what, std::strerror(errno));
}

Result<FileDescriptor> make_socket() {
    FileDescriptor made(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    if (!made.is_open()) return failed("make a socket");
    return made;
}

struct Address {
    sockaddr_un unix_address{};
    socklen_t bytes;

    // The leading zero puts the name into the abstract name space.
    explicit Address(const StarAddress &star)
        : bytes(static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + star.name.size())) {
        unix_address.sun_family = AF_UNIX;
        std::memcpy(unix_address.sun_path + 1, star.name.data(), star.name.size());
    }
    const sockaddr *get() const { return reinterpret_cast<const sockaddr *>(&unix_address); }
};

// Of the process at the other end, as this one's user namespace numbers users.
std::optional<uid_t> user_of(const FileDescriptor &connection) {
    ucred peer{};
    socklen_t bytes = sizeof peer;
    if (getsockopt(connection.number(), SOL_SOCKET, SO_PEERCRED, &peer, &bytes) != 0)
        return std::nullopt;
    return peer.uid;
}

void bound_blocking(const FileDescriptor &connection, Time timeout) {
    const auto us = std::chrono::duration_cast<std::chrono::microseconds>(timeout).count();
    const timeval bound{us / std::micro::den, us % std::micro::den};
    setsockopt(connection.number(), SOL_SOCKET, SO_RCVTIMEO, &bound, sizeof bound);
    setsockopt(connection.number(), SOL_SOCKET, SO_SNDTIMEO, &bound, sizeof bound);
}

// Room for the descriptors of one message, aligned as the kernel wants it.
union Control {
    cmsghdr header;
    std::byte room[CMSG_SPACE(2 * pairs_per_message * sizeof(int))];
};

bool send_pairs(const FileDescriptor &connection, const Message &message, const FdPair *pairs) {
    Control control{};
    iovec bytes{const_cast<Message *>(&message), sizeof message};
    msghdr packet{};
    packet.msg_iov = &bytes;
    packet.msg_iovlen = 1;
    packet.msg_control = &control;
    packet.msg_controllen = CMSG_SPACE(2 * message.pairs * sizeof(int));
    cmsghdr *const header = CMSG_FIRSTHDR(&packet);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(2 * message.pairs * sizeof(int));
    for (size_t i = 0; i < 2 * size_t{message.pairs}; i++) {
        const int number = pairs[i / 2][i % 2].number();
        std::memcpy(CMSG_DATA(header) + i * sizeof number, &number, sizeof number);
    }
    ssize_t sent;
    do sent = sendmsg(connection.number(), &packet, MSG_NOSIGNAL);
    while (sent < 0 && errno == EINTR);
    return sent == sizeof message;
}

struct Received {
    Message message;
    std::vector<FdPair> pairs;
};

// Whatever descriptors came are owned before anything is judged, so that none can leak.
std::vector<FileDescriptor> take_descriptors(msghdr &packet) {
    std::vector<FileDescriptor> taken;
    for (cmsghdr *header = CMSG_FIRSTHDR(&packet); header; header = CMSG_NXTHDR(&packet, header)) {
        if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
        for (size_t at = 0; at + sizeof(int) <= header->cmsg_len - CMSG_LEN(0); at += sizeof(int)) {
            int number;
            std::memcpy(&number, CMSG_DATA(header) + at, sizeof number);
            taken.emplace_back(number);
        }
    }
    return taken;
}

// Nothing: not a message of ours, or the connection is at its end.
std::optional<Received> receive_pairs(const FileDescriptor &connection, const StarAddress &address,
                                      int flags) {
    Control control{};
    Received received;
    iovec bytes{&received.message, sizeof received.message};
    msghdr packet{};
    packet.msg_iov = &bytes;
    packet.msg_iovlen = 1;
    packet.msg_control = &control;
    packet.msg_controllen = sizeof control;
    ssize_t got;
    do got = recvmsg(connection.number(), &packet, MSG_CMSG_CLOEXEC | flags);
    while (got < 0 && errno == EINTR);
    if (got < 0) return std::nullopt;
    std::vector<FileDescriptor> taken = take_descriptors(packet);
    const bool is_ours = got == sizeof received.message && (packet.msg_flags & MSG_TRUNC) == 0 &&
                         received.message.cookie == address.cookie;
    const bool is_whole =
        (packet.msg_flags & MSG_CTRUNC) == 0 && taken.size() == 2 * size_t{received.message.pairs};
    // For whoever words the failure: where no descriptor is free, the kernel leaves some out.
    errno = is_ours && (packet.msg_flags & MSG_CTRUNC) ? EMFILE : EPROTO;
    if (!is_ours || !is_whole) return std::nullopt;
    for (size_t i = 0; i < taken.size(); i += 2)
        received.pairs.push_back({std::move(taken[i]), std::move(taken[i + 1])});
    return received;
}

// The middle while it waits: who has come, and who is at the door.
class Reception {
public:
    Reception(const FileDescriptor &listener, const StarAddress &address, uint32_t size)
        : listener_(listener), address_(address), pairs_(size), connections_(size) {}

    void put(uint32_t rank, FdPair pair) {
        pairs_[rank] = std::move(pair);
        come_++;
    }
    bool is_complete() const { return come_ == pairs_.size(); }
    Error late() const {
        const auto missing = std::find_if(pairs_.begin(), pairs_.end(),
                                          [](const FdPair &pair) { return !pair[0].is_open(); });
        const auto rank = static_cast<uint32_t>(missing - pairs_.begin());
        if (!turned_away_)
            return Error::make(Code::timeout, "rank %u did not connect to exchange shared memory",
                               rank)
                .at_rank(rank);
        return Error::make(Code::timeout,
                           "rank %u did not connect to exchange shared memory; a process of user "
                           "%u came and was turned away, because rank 0 runs as user %u",
                           rank, *turned_away_, geteuid())
            .at_rank(rank);
    }

    // Waits for something to happen at the door and deals with it.
    Done attend(Time longest) {
        std::vector<pollfd> polls{{listener_.number(), POLLIN, 0}};
        for (const FileDescriptor &silent : silent_) polls.push_back({silent.number(), POLLIN, 0});
        const auto ms = std::chrono::ceil<std::chrono::milliseconds>(longest).count();
        if (poll(polls.data(), polls.size(), static_cast<int>(std::min<int64_t>(ms, 1000))) <= 0)
            return {};
        for (size_t i = polls.size() - 1; i > 0; i--)
            if (polls[i].revents) QCCL_TRY(hear(i - 1));
        return polls[0].revents ? admit() : Done();
    }

    void spread() const {
        const auto size = static_cast<uint32_t>(pairs_.size());
        for (const FileDescriptor &connection : connections_) {
            if (!connection.is_open()) continue;
            for (uint32_t first = 0; first < size; first += pairs_per_message) {
                const uint32_t pairs = std::min(pairs_per_message, size - first);
                // A rank that is gone is missed by all where they compare their outcomes.
                if (!send_pairs(connection, {address_.cookie, first, pairs}, &pairs_[first])) break;
            }
        }
    }

    std::vector<FdPair> take() { return std::move(pairs_); }

private:
    Done admit() {
        FileDescriptor connection(accept4(listener_.number(), nullptr, nullptr, SOCK_CLOEXEC));
        if (!connection.is_open()) {
            if (errno != EMFILE && errno != ENFILE) return {};
            // Whoever has said nothing yet makes room; a rank speaks as soon as it has come.
            if (silent_.empty()) return failed("accept a rank's connection");
            silent_.erase(silent_.begin());
            return {};
        }
        const std::optional<uid_t> user = user_of(connection);
        if (user != geteuid()) {
            turned_away_ = user;
            return {};
        }
        if (silent_.size() >= pairs_.size() + silent_strangers) silent_.erase(silent_.begin());
        silent_.push_back(std::move(connection));
        return {};
    }

    Done hear(size_t i) {
        FileDescriptor connection = std::move(silent_[i]);
        silent_.erase(silent_.begin() + static_cast<ptrdiff_t>(i));
        auto received = receive_pairs(connection, address_, MSG_DONTWAIT);
        if (!received && errno == EMFILE) return failed("take a rank's shared memory");
        if (!received || received->pairs.size() != 1) return {};
        const uint32_t rank = received->message.first;
        if (rank >= pairs_.size() || pairs_[rank][0].is_open()) return {};
        put(rank, std::move(received->pairs[0]));
        connections_[rank] = std::move(connection);
        return {};
    }

    const FileDescriptor &listener_;
    const StarAddress &address_;
    std::vector<FdPair> pairs_;               // by rank
    std::vector<FileDescriptor> connections_; // by rank
    std::vector<FileDescriptor> silent_;
    std::optional<uid_t> turned_away_; // the last who came as another user
    size_t come_ = 0;
};

} // namespace

Result<FdStar> FdStar::open() {
    FdStar star;
    std::array<unsigned char, 12> noise;
    if (getrandom(noise.data(), noise.size(), 0) != static_cast<ssize_t>(noise.size()) ||
        getrandom(star.address_.cookie.data(), star.address_.cookie.size(), 0) !=
            static_cast<ssize_t>(star.address_.cookie.size()))
        return failed("get random bytes");
    for (size_t i = 0; i < star.address_.name.size(); i++)
        star.address_.name[i] = "0123456789abcdef"[noise[i / 2] >> (i % 2 * 4) & 15];

    QCCL_TRY(star.listener_, make_socket());
    const Address address(star.address_);
    if (bind(star.listener_.number(), address.get(), address.bytes) != 0)
        return failed("bind a socket");
    if (listen(star.listener_.number(), SOMAXCONN) != 0) return failed("listen on a socket");
    return star;
}

Result<std::vector<FdPair>> FdStar::serve(FdPair mine, uint32_t size, Time timeout) {
    const auto deadline = Clock::now() + timeout;
    Reception reception(listener_, address_, size);
    reception.put(0, std::move(mine));
    while (!reception.is_complete()) {
        const auto left = deadline - Clock::now();
        if (left <= Time{}) return reception.late();
        QCCL_TRY(reception.attend(left));
    }
    reception.spread();
    return reception.take();
}

Result<FdRay> FdRay::open() {
    FdRay ray;
    QCCL_TRY(ray.connection_, make_socket());
    return ray;
}

Result<std::vector<FdPair>> FdRay::join(const StarAddress &star, uint32_t rank, uint32_t size,
                                        FdPair mine, Time timeout) {
    const FileDescriptor connection = std::move(connection_);
    bound_blocking(connection, timeout);
    const Address address(star);
    if (connect(connection.number(), address.get(), address.bytes) != 0)
        return failed("connect to rank 0 to exchange shared memory");
    const std::optional<uid_t> user = user_of(connection);
    if (user != geteuid())
        return Error::make(Code::system_error,
                           "rank 0 runs as user %d, rank %u as user %u: ranks of one host must "
                           "belong to one user",
                           user ? static_cast<int>(*user) : -1, rank, geteuid())
            .at_rank(0);
    if (!send_pairs(connection, {star.cookie, rank, 1}, &mine))
        return failed("pass shared memory to rank 0");
    std::vector<FdPair> all;
    while (all.size() < size) {
        auto received = receive_pairs(connection, star, 0);
        if (!received) return failed("receive the ranks' shared memory from rank 0");
        if (received->message.first != all.size() || received->pairs.empty())
            return Error::make(Code::system_error, "rank 0 passed shared memory out of order")
                .at_rank(0);
        for (FdPair &pair : received->pairs) all.push_back(std::move(pair));
    }
    return all;
}

} // namespace qccl
