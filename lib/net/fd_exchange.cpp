// Sends and receives messages with descriptors by sendmsg and recvmsg, and runs the server's and
// the client's side of the exchange over them.
#include "net/fd_exchange.hpp"

#include "base/system.hpp"
#include "net/acceptor.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <thread>

#include <fcntl.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>

namespace qccl {

// ---- Messages with descriptors

using Clock = std::chrono::steady_clock;

namespace {

// Control data of one message, aligned as the kernel requires.
union ControlBuffer {
    cmsghdr header;
    std::byte buffer[CMSG_SPACE(2 * pairs_per_message * sizeof(int))];
};

// Takes ownership of all descriptors that came before the message is checked, so that none can
// leak.
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

} // namespace

bool await(const FileDescriptor &connection, short events, TimePoint deadline) {
    for (;;) {
        const TimePoint now = Clock::now();
        pollfd one{connection.number(), events, 0};
        const int ready = poll(&one, 1, poll_timeout_ms(now, deadline));
        if (ready > 0) return true;
        if (now >= deadline) return false;
        if (ready < 0) std::this_thread::sleep_for(retry_pause);
    }
}

int send_fds(const FileDescriptor &connection, const FdMessage &message, const FdPair *pairs,
             TimePoint deadline) {
    ControlBuffer control{};
    iovec bytes{const_cast<FdMessage *>(&message), sizeof message};
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
    for (;;) {
        const TimePoint now = Clock::now();
        if (sendmsg(connection.number(), &packet, MSG_NOSIGNAL | MSG_DONTWAIT) >= 0) return 0;
        const int reason = errno;
        if (reason == EINTR) continue;
        const bool may_pass = reason == EAGAIN || reason == ETOOMANYREFS;
        if (!may_pass || now >= deadline) return reason;
        // The kernel limits the descriptors of one user that are sent and not received yet, so
        // other receivers must read theirs before this message can go out.
        if (reason == ETOOMANYREFS)
            std::this_thread::sleep_for(retry_pause);
        else
            (void)await(connection, POLLOUT, deadline);
    }
}

std::optional<ReceivedFds> receive_fds(const FileDescriptor &connection, const FdCookie &cookie) {
    ControlBuffer control{};
    ReceivedFds received;
    iovec bytes{&received.message, sizeof received.message};
    msghdr packet{};
    packet.msg_iov = &bytes;
    packet.msg_iovlen = 1;
    packet.msg_control = &control;
    std::vector<FileDescriptor> taken;
    const auto receive = [&] {
        taken.clear(); // a stranger's empty message may have brought some
        packet.msg_controllen = sizeof control;
        ssize_t got;
        do got = recvmsg(connection.number(), &packet, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
        while (got < 0 && errno == EINTR);
        if (got >= 0) taken = take_descriptors(packet);
        return got;
    };
    ssize_t got = receive();
    // The kernel looks for a message first and for the end second. Where the other end sends and
    // closes in between, it reports the end before the message, which the next call returns.
    if (got == 0) got = receive();
    if (got < 0) return std::nullopt;
    const bool is_ours = got == sizeof received.message && (packet.msg_flags & MSG_TRUNC) == 0 &&
                         received.message.cookie == cookie;
    const bool is_whole =
        (packet.msg_flags & MSG_CTRUNC) == 0 && taken.size() == 2 * size_t{received.message.pairs};
    if (is_ours && is_whole) {
        for (size_t i = 0; i < taken.size(); i += 2)
            received.pairs.push_back({std::move(taken[i]), std::move(taken[i + 1])});
        return received;
    }
    taken.clear();
    // The kernel leaves descriptors out if this process has no number free for them.
    const bool is_short = is_ours && (packet.msg_flags & MSG_CTRUNC) != 0;
    errno = is_short ? EMFILE : got == 0 ? ECONNRESET : EPROTO;
    return std::nullopt;
}

// ---- Server and client

namespace {

using Time = std::chrono::nanoseconds;

// The number of accepted connections that may be silent, beyond one for each rank.
constexpr size_t silent_strangers = 64;

Result<FileDescriptor> make_socket() {
    FileDescriptor made(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!made.is_open()) return cannot("make a socket");
    return made;
}

// Returns the user of the process at the other end, as this process's user namespace numbers users.
std::optional<uid_t> user_of(const FileDescriptor &connection) {
    ucred peer{};
    socklen_t bytes = sizeof peer;
    if (getsockopt(connection.number(), SOL_SOCKET, SO_PEERCRED, &peer, &bytes) != 0)
        return std::nullopt;
    return peer.uid;
}

Error not_passed(uint32_t rank, int reason) {
    if (reason == EAGAIN)
        return Error::make(Code::timeout, "rank %u does not take the shared memory that it is sent",
                           rank)
            .at_rank(rank);
    if (reason != ETOOMANYREFS)
        return Error::make(Code::system_error, "cannot pass shared memory to rank %u: %s", rank,
                           std::strerror(reason));
    rlimit most{};
    getrlimit(RLIMIT_NOFILE, &most);
    return Error::make(Code::system_error,
                       "cannot pass shared memory to rank %u: user %u has sent more than %llu "
                       "descriptors (ulimit -n) that nobody has received yet",
                       rank, geteuid(), static_cast<unsigned long long>(most.rlim_cur));
}

// If the server has closed the connection because of an error of its own, the server reports that
// error itself.
Error server_left(uint32_t server_rank) {
    return Error::make(Code::peer_lost, "rank %u left before it had passed on all shared memory",
                       server_rank)
        .at_rank(server_rank);
}

Done reach(const FileDescriptor &connection, const FdExchangeAddress &server, uint32_t server_rank,
           uint32_t rank, TimePoint deadline) {
    const AbstractAddress address(server.name);
    while (connect(connection.number(), address.get(), address.bytes) != 0) {
        if (errno == ECONNREFUSED) return server_left(server_rank);
        // EAGAIN: the server's backlog is full, and no event tells when it has space again.
        if (errno != EINTR && errno != EAGAIN)
            return Error::make(Code::system_error,
                               "cannot connect to rank %u to exchange shared memory: %s",
                               server_rank, describe_errno(errno).c_str());
        if (Clock::now() >= deadline)
            return Error::make(Code::timeout, "rank %u lets nobody in to exchange shared memory",
                               server_rank)
                .at_rank(server_rank);
        std::this_thread::sleep_for(retry_pause);
    }
    const std::optional<uid_t> user = user_of(connection);
    if (user == geteuid()) return {};
    return Error::make(Code::system_error,
                       "rank %u runs as user %d, rank %u as user %u: ranks of one host must "
                       "belong to one user",
                       server_rank, user ? static_cast<int>(*user) : -1, rank, geteuid())
        .at_rank(server_rank);
}

// The server's state during one exchange: the descriptors that have come, and the accepted
// connections that have sent nothing yet.
class FdExchangeSession {
public:
    FdExchangeSession(const FileDescriptor &listener, const FdExchangeAddress &address,
                      std::span<const uint32_t> ranks)
        : listener_(listener), address_(address), ranks_(ranks), pairs_(ranks.size()),
          connections_(ranks.size()), acceptor_(ranks.size() + silent_strangers) {}

    void put(uint32_t rank, FdPair pair) {
        pairs_[rank] = std::move(pair);
        come_++;
    }
    bool is_complete() const { return come_ == pairs_.size(); }
    Error late() const {
        const auto missing = std::find_if(pairs_.begin(), pairs_.end(),
                                          [](const FdPair &pair) { return !pair[0].is_open(); });
        const uint32_t rank = ranks_[static_cast<size_t>(missing - pairs_.begin())];
        if (!turned_away_)
            return Error::make(Code::timeout, "rank %u did not connect to exchange shared memory",
                               rank)
                .at_rank(rank);
        return Error::make(Code::timeout,
                           "rank %u did not connect to exchange shared memory; a process of user "
                           "%u came and was turned away, because rank %u runs as user %u",
                           rank, *turned_away_, ranks_[0], geteuid())
            .at_rank(rank);
    }

    // Waits until a rank connects or sends, until `deadline` at the latest, and handles that.
    Done attend(TimePoint deadline) {
        std::vector<pollfd> polls{{listener_.number(), POLLIN, 0}};
        acceptor_.append_polls(polls);
        if (poll(polls.data(), polls.size(), poll_timeout_ms(Clock::now(), deadline)) <= 0)
            return {};
        const auto ready = static_cast<size_t>(std::count_if(
            polls.begin() + 1, polls.end(), [](const pollfd &each) { return each.revents != 0; }));
        // A message that comes when no descriptor is free loses those that it carries.
        if (!can_open(2 * ready) && acceptor_.drop_silent(polls.data() + 1)) return {};
        Done done;
        acceptor_.identify_from(polls.data() + 1, [&](FileDescriptor &connection) {
            if (done) done = receive_from(connection);
            return false;
        });
        QCCL_TRY(done);
        return polls[0].revents ? admit() : Done();
    }

    Done send_to_all(TimePoint deadline) const {
        const auto size = static_cast<uint32_t>(pairs_.size());
        for (uint32_t rank = 0; rank < size; rank++) {
            if (!connections_[rank].is_open()) continue;
            const int reason = send_to_rank(connections_[rank], deadline);
            // A rank that has gone is no error here: all ranks notice it when they compare their
            // outcomes after the exchange.
            const bool is_gone = reason == EPIPE || reason == ECONNRESET;
            if (reason != 0 && !is_gone) return not_passed(ranks_[rank], reason);
        }
        return {};
    }

    std::vector<FdPair> take() { return std::move(pairs_); }

private:
    int send_to_rank(const FileDescriptor &connection, TimePoint deadline) const {
        const auto size = static_cast<uint32_t>(pairs_.size());
        for (uint32_t first = 0; first < size; first += pairs_per_message) {
            const FdMessage message{address_.cookie, first,
                                    std::min(pairs_per_message, size - first)};
            if (const int reason = send_fds(connection, message, &pairs_[first], deadline))
                return reason;
        }
        return 0;
    }

    bool can_open(size_t descriptors) const {
        std::vector<FileDescriptor> opened;
        for (size_t i = 0; i < descriptors; i++) {
            opened.emplace_back(fcntl(listener_.number(), F_DUPFD_CLOEXEC, 0));
            if (!opened.back().is_open()) return false;
        }
        return true;
    }

    Done admit() {
        return acceptor_.accept_at(listener_, [this](const FileDescriptor &connection) {
            const std::optional<uid_t> user = user_of(connection);
            if (user != geteuid()) turned_away_ = user;
            return user == geteuid();
        });
    }

    Done receive_from(FileDescriptor &connection) {
        auto received = receive_fds(connection, address_.cookie);
        if (!received && errno == EMFILE) return cannot("take a rank's shared memory");
        if (!received || received->pairs.size() != 1) return {};
        const uint32_t rank = received->message.first;
        if (rank >= pairs_.size() || pairs_[rank][0].is_open()) return {};
        put(rank, std::move(received->pairs[0]));
        connections_[rank] = std::move(connection);
        return {};
    }

    const FileDescriptor &listener_;
    const FdExchangeAddress &address_;
    const std::span<const uint32_t> ranks_;
    std::vector<FdPair> pairs_; // by index in `ranks_`
    std::vector<FileDescriptor> connections_;
    Acceptor acceptor_;
    std::optional<uid_t> turned_away_; // user of the last process that was refused
    size_t come_ = 0;
};

} // namespace

Result<FdExchangeServer> FdExchangeServer::open() {
    FdExchangeServer server;
    QCCL_TRY(server.address_.name, draw_name());
    QCCL_TRY(draw_bytes(server.address_.cookie));
    QCCL_TRY(server.listener_, make_socket());
    const AbstractAddress address(server.address_.name);
    if (bind(server.listener_.number(), address.get(), address.bytes) != 0)
        return cannot("bind a socket");
    if (listen(server.listener_.number(), SOMAXCONN) != 0) return cannot("listen on a socket");
    return server;
}

Result<std::vector<FdPair>> FdExchangeServer::serve(FdPair mine, std::span<const uint32_t> ranks,
                                                    Time timeout, const CancelCheck &cancel_check) {
    const TimePoint deadline = deadline_after(Clock::now(), timeout);
    FdExchangeSession session(listener_, address_, ranks);
    session.put(0, std::move(mine));
    while (!session.is_complete()) {
        const TimePoint now = Clock::now();
        if (now >= deadline) return session.late();
        if (cancel_check) QCCL_TRY(cancel_check());
        QCCL_TRY(session.attend(next_look(now, deadline, cancel_check)));
    }
    QCCL_TRY(session.send_to_all(deadline));
    return session.take();
}

Result<FdExchangeClient> FdExchangeClient::open() {
    FdExchangeClient client;
    QCCL_TRY(client.connection_, make_socket());
    return client;
}

Result<std::vector<FdPair>> FdExchangeClient::join(const FdExchangeAddress &server, uint32_t place,
                                                   std::span<const uint32_t> ranks, FdPair mine,
                                                   Time timeout) {
    const uint32_t server_rank = ranks[0];
    const FileDescriptor connection = std::move(connection_);
    const TimePoint deadline = deadline_after(Clock::now(), timeout);
    const uint32_t rank = place < ranks.size() ? ranks[place] : place;
    QCCL_TRY(reach(connection, server, server_rank, rank, deadline));
    const int reason = send_fds(connection, {server.cookie, place, 1}, &mine, deadline);
    if (reason == EPIPE || reason == ECONNRESET) return server_left(server_rank);
    if (reason != 0) return not_passed(server_rank, reason);
    std::vector<FdPair> all;
    while (all.size() < ranks.size()) {
        auto received = receive_fds(connection, server.cookie);
        if (!received && errno == EAGAIN) {
            if (await(connection, POLLIN, deadline)) continue;
            return Error::make(Code::timeout, "rank %u does not pass on the ranks' shared memory",
                               server_rank)
                .at_rank(server_rank);
        }
        if (!received && errno == ECONNRESET) return server_left(server_rank);
        if (!received)
            return Error::make(Code::system_error,
                               "cannot receive the ranks' shared memory from rank %u: %s",
                               server_rank, describe_errno(errno).c_str());
        if (received->message.first != all.size() || received->pairs.empty())
            return Error::make(Code::system_error, "rank %u passed shared memory out of order",
                               server_rank)
                .at_rank(server_rank);
        for (FdPair &pair : received->pairs) all.push_back(std::move(pair));
    }
    return all;
}

} // namespace qccl
