// One poll loop connects and accepts: in a ring of ranks that each connect first and accept later,
// every rank would wait for the next one.
#include "transport/keepalive_connector.hpp"

#include "base/system_error.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <netinet/tcp.h>

namespace qccl {

namespace {

using Clock = std::chrono::steady_clock;

struct KeepaliveHello {
    std::array<std::byte, 16> cookie;
    uint32_t rank;
};

// With this many silent connections, a new one replaces the oldest.
constexpr size_t most_guests = 64;
// A link may be down for a moment, so attempts are repeated. A port that refuses is not tried
// again.
constexpr auto between_attempts = std::chrono::milliseconds(100);

// Waiting does not help against this error: the process itself has too many open files.
bool is_scarcity(int problem) { return problem == EMFILE || problem == ENFILE; }

bool is_link_local(const InetAddress &address) {
    return address.any.sa_family == AF_INET6 && IN6_IS_ADDR_LINKLOCAL(&address.ipv6.sin6_addr);
}

} // namespace

void KeepaliveConnector::call(const KeepaliveAddress &contact, uint32_t rank) {
    called_ = rank;
    contact_ = contact;
    for (const InetAddress &theirs : contact.addresses) {
        if (!theirs.is_there()) continue;
        if (!is_link_local(theirs)) {
            attempts_.push_back({.address = theirs, .connection = {}});
            continue;
        }
        // The scope of a link-local address is an interface number on the other machine. On this
        // machine, each interface may lead there.
        for (const InetAddress &ours : listener_.contact().addresses) {
            if (!is_link_local(ours)) continue;
            InetAddress address = theirs;
            address.ipv6.sin6_scope_id = ours.ipv6.sin6_scope_id;
            attempts_.push_back({.address = address, .connection = {}});
        }
    }
}

Done KeepaliveConnector::start(Attempt &attempt) {
    attempt.has_greeted = false;
    attempt.connection = FileDescriptor(
        socket(attempt.address.any.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!attempt.connection.is_open()) {
        const int problem = errno;
        if (is_scarcity(problem) && !send_guest_away()) return cannot("make a socket");
        fail(attempt, problem);
        return {};
    }
    const int done =
        connect(attempt.connection.number(), &attempt.address.any, attempt.address.bytes());
    if (done != 0 && errno != EINPROGRESS && errno != EINTR) fail(attempt, errno);
    return {};
}

void KeepaliveConnector::fail(Attempt &attempt, int problem) {
    problem_ = problem;
    attempt.connection = FileDescriptor();
    const bool is_for_good = problem == ECONNREFUSED || problem == EACCES;
    attempt.again = is_for_good ? TimePoint::max() : Clock::now() + between_attempts;
}

void KeepaliveConnector::go_on(Attempt &attempt) {
    const int connection = attempt.connection.number();
    if (attempt.has_greeted) {
        std::array<std::byte, 16> answer{};
        const ssize_t got = recv(connection, &answer, sizeof answer, MSG_DONTWAIT);
        if (got == sizeof answer && answer == contact_.answer)
            to_called_ = std::move(attempt.connection);
        else if (got > 0) // another program answers
            fail(attempt, ECONNREFUSED);
        else // strangers may have displaced it; an end of the rank shows at the next try
            fail(attempt, ECONNRESET);
        return;
    }
    int problem = 0;
    socklen_t bytes = sizeof problem;
    getsockopt(connection, SOL_SOCKET, SO_ERROR, &problem, &bytes);
    if (problem != 0) return fail(attempt, problem);
    const KeepaliveHello hello{contact_.cookie, own_rank_};
    if (send(connection, &hello, sizeof hello, MSG_NOSIGNAL) != sizeof hello)
        return fail(attempt, errno);
    attempt.has_greeted = true;
}

Done KeepaliveConnector::connect_where_time_has_come() {
    const TimePoint now = Clock::now();
    for (Attempt &attempt : attempts_)
        if (!attempt.connection.is_open() && attempt.again <= now) QCCL_TRY(start(attempt));
    std::erase_if(attempts_, [](const Attempt &attempt) {
        return !attempt.connection.is_open() && attempt.again == TimePoint::max();
    });
    return {};
}

Done KeepaliveConnector::let_in(const FileDescriptor &listener) {
    FileDescriptor guest(
        accept4(listener.number(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!guest.is_open()) {
        if (is_scarcity(errno) && !send_guest_away())
            return cannot("accept a connection of another host");
        return {};
    }
    if (guests_.size() >= most_guests) send_guest_away();
    guests_.push_back(std::move(guest));
    return {};
}

bool KeepaliveConnector::send_guest_away() {
    if (guests_.empty()) return false;
    guests_.erase(guests_.begin());
    return true;
}

bool KeepaliveConnector::hear(FileDescriptor &guest) {
    KeepaliveHello hello{};
    const ssize_t got = recv(guest.number(), &hello, sizeof hello, MSG_DONTWAIT);
    if (got < 0 && errno == EAGAIN) return true;
    const KeepaliveAddress &own = listener_.contact();
    const bool is_expected = got == sizeof hello && hello.cookie == own.cookie &&
                             expected_ == hello.rank && !from_expected_.is_open();
    if (is_expected &&
        send(guest.number(), &own.answer, sizeof own.answer, MSG_NOSIGNAL) == sizeof own.answer)
        from_expected_ = std::move(guest);
    return false;
}

// Waits until a listener, an accepted connection or an attempt is ready.
int KeepaliveConnector::look(std::vector<pollfd> &polls, TimePoint deadline) const {
    polls.clear();
    for (const FileDescriptor &listener : listener_.listeners())
        polls.push_back({listener.number(), POLLIN, 0});
    for (const FileDescriptor &guest : guests_) polls.push_back({guest.number(), POLLIN, 0});
    TimePoint until = deadline;
    for (const Attempt &attempt : attempts_) {
        const short what = attempt.has_greeted ? POLLIN : POLLOUT;
        polls.push_back({attempt.connection.number(), what, 0});
        if (!attempt.connection.is_open()) until = std::min(until, attempt.again);
    }
    return poll(polls.data(), polls.size(), poll_timeout_ms(Clock::now(), until));
}

Done KeepaliveConnector::run(TimePoint deadline, const CancelCheck &cancel_check) {
    std::vector<pollfd> polls;
    for (;;) {
        if (called_ && !to_called_.is_open()) QCCL_TRY(connect_where_time_has_come());
        if (is_over()) return {};
        const bool is_hopeless = called_ && !to_called_.is_open() && attempts_.empty();
        const TimePoint now = Clock::now();
        if (is_hopeless || now >= deadline) return late();
        if (cancel_check) QCCL_TRY(cancel_check());
        if (look(polls, next_look(now, deadline, cancel_check)) <= 0) continue;
        auto heard = polls.begin();
        const auto has_something = [&] { return (heard++)->revents != 0; };
        std::vector<const FileDescriptor *> doors;
        for (const FileDescriptor &listener : listener_.listeners())
            if (has_something()) doors.push_back(&listener);
        std::erase_if(guests_,
                      [&](FileDescriptor &guest) { return has_something() && !hear(guest); });
        for (Attempt &attempt : attempts_)
            if (has_something() && !to_called_.is_open()) go_on(attempt);
        if (to_called_.is_open()) attempts_.clear();
        for (const FileDescriptor *door : doors) QCCL_TRY(let_in(*door));
    }
}

Done KeepaliveConnector::late() const {
    if (called_ && !to_called_.is_open())
        return Error::make(Code::peer_lost, "cannot reach the host of rank %u: %s", *called_,
                           std::strerror(problem_ != 0 ? problem_ : ETIMEDOUT))
            .at_rank(*called_);
    return Error::make(Code::timeout, "rank %u did not connect from its host", *expected_)
        .at_rank(*expected_);
}

void enable_keepalive(const FileDescriptor &connection, std::chrono::nanoseconds silence) {
    using std::chrono::duration_cast;
    const auto set = [&](int level, int option, int64_t value) {
        const int clamped = static_cast<int>(std::clamp<int64_t>(value, 1, INT32_MAX));
        setsockopt(connection.number(), level, option, &clamped, sizeof clamped);
    };
    // Probes begin early enough for several to go unanswered, so that the silence decides.
    const int64_t seconds = duration_cast<std::chrono::seconds>(silence).count();
    set(SOL_SOCKET, SO_KEEPALIVE, 1);
    set(IPPROTO_TCP, TCP_KEEPIDLE, seconds / 4);
    set(IPPROTO_TCP, TCP_KEEPINTVL, seconds / 8);
    set(IPPROTO_TCP, TCP_KEEPCNT, 64);
    set(IPPROTO_TCP, TCP_USER_TIMEOUT, duration_cast<std::chrono::milliseconds>(silence).count());
}

} // namespace qccl
