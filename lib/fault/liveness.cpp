// Opens the listening sockets of keepalive connections, makes the connections, and watches them and
// the local processes. One poll loop connects and accepts: in a ring of ranks that each connect
// first and accept later, every rank would wait for the next one. LivenessMonitor uses pidfds, or
// pipes where there are none.
#include "fault/liveness.hpp"

#include "base/random_names.hpp"
#include "base/system.hpp"
#include "net/addresses.hpp"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/syscall.h>

namespace qccl {

// ---- Listening for connections

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

// ---- Making the connections

namespace {

using Clock = std::chrono::steady_clock;

struct KeepaliveHello {
    std::array<std::byte, 16> cookie;
    uint32_t rank;
};

// A link may be down for a moment, so attempts are repeated. A port that refuses is not tried
// again.
constexpr auto between_attempts = std::chrono::milliseconds(100);

} // namespace

void KeepaliveConnector::call(const KeepaliveAddress &contact, uint32_t rank) {
    called_ = rank;
    contact_ = contact;
    for (const InetAddress &theirs : contact.addresses) {
        if (!theirs.is_there()) continue;
        if (!is_link_local(to_endpoint(&theirs.any))) {
            attempts_.push_back({.address = theirs, .connection = {}});
            continue;
        }
        // The scope of a link-local address is an interface number on the other machine. On this
        // machine, each interface may lead there.
        for (const InetAddress &ours : listener_.contact().addresses) {
            if (!is_link_local(to_endpoint(&ours.any))) continue;
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
        if (is_out_of_descriptors(problem) && !acceptor_.drop_oldest())
            return cannot("make a socket");
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

bool KeepaliveConnector::receive_hello(FileDescriptor &connection) {
    KeepaliveHello hello{};
    const ssize_t got = recv(connection.number(), &hello, sizeof hello, MSG_DONTWAIT);
    if (got < 0 && errno == EAGAIN) return true;
    const KeepaliveAddress &own = listener_.contact();
    const bool is_expected = got == sizeof hello && hello.cookie == own.cookie &&
                             expected_ == hello.rank && !from_expected_.is_open();
    if (is_expected && send(connection.number(), &own.answer, sizeof own.answer, MSG_NOSIGNAL) ==
                           sizeof own.answer)
        from_expected_ = std::move(connection);
    return false;
}

// Waits until a listener, an accepted connection or an attempt is ready.
int KeepaliveConnector::poll_descriptors(std::vector<pollfd> &polls, TimePoint deadline) const {
    polls.clear();
    for (const FileDescriptor &listener : listener_.listeners())
        polls.push_back({listener.number(), POLLIN, 0});
    acceptor_.append_polls(polls);
    TimePoint until = deadline;
    for (const Attempt &attempt : attempts_) {
        const short what = attempt.has_greeted ? POLLIN : POLLOUT;
        polls.push_back({attempt.connection.number(), what, 0});
        if (!attempt.connection.is_open()) until = std::min(until, attempt.again);
    }
    return poll(polls.data(), polls.size(), poll_timeout_ms(Clock::now(), until));
}

Done KeepaliveConnector::run(TimePoint deadline, const CancelCheck &cancel_check) {
    const std::vector<FileDescriptor> &listeners = listener_.listeners();
    std::vector<pollfd> polls;
    for (;;) {
        if (called_ && !to_called_.is_open()) QCCL_TRY(connect_where_time_has_come());
        if (is_over()) return {};
        const bool is_hopeless = called_ && !to_called_.is_open() && attempts_.empty();
        const TimePoint now = Clock::now();
        if (is_hopeless || now >= deadline) return late();
        if (cancel_check) QCCL_TRY(cancel_check());
        if (poll_descriptors(polls, next_look(now, deadline, cancel_check)) <= 0) continue;
        const pollfd *const of_listeners = polls.data();
        const pollfd *const of_silent = of_listeners + listeners.size();
        const pollfd *of_attempts = of_silent + acceptor_.size();
        acceptor_.identify_from(
            of_silent, [this](FileDescriptor &connection) { return receive_hello(connection); });
        for (Attempt &attempt : attempts_)
            if ((of_attempts++)->revents != 0 && !to_called_.is_open()) go_on(attempt);
        if (to_called_.is_open()) attempts_.clear();
        for (size_t i = 0; i < listeners.size(); i++)
            if (of_listeners[i].revents != 0)
                QCCL_TRY(acceptor_.accept_at(listeners[i], [](const auto &) { return true; }));
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

// ---- Watching processes and connections

Result<ProcessLiveness> ProcessLiveness::open() {
    ProcessLiveness own;
    own.shown = FileDescriptor(static_cast<int>(syscall(SYS_pidfd_open, getpid(), 0)));
    if (own.shown.is_open()) return own;
    // The kernel is older than Linux 5.3, or a container's filter forbids the call.
    if (errno == ENOSYS || errno == EPERM) return open_pipe();
    return cannot("open a pidfd");
}

Result<ProcessLiveness> ProcessLiveness::open_pipe() {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) return cannot("open a pipe");
    return ProcessLiveness{FileDescriptor(ends[0]), FileDescriptor(ends[1])};
}

LivenessMonitor::LivenessMonitor(std::vector<FileDescriptor> shown, FileDescriptor held)
    : held_(std::move(held)), shield_(held_) {
    for (FileDescriptor &descriptor : shown) {
        polls_.push_back({descriptor.number(), POLLIN, 0});
        watched_.push_back({.shown = std::move(descriptor)});
    }
}

void LivenessMonitor::add_connection(uint32_t rank, const std::vector<uint32_t> &host_ranks,
                                     FileDescriptor connection) {
    const size_t ranks = *std::max_element(host_ranks.begin(), host_ranks.end()) + size_t{1};
    if (watched_.size() < ranks) {
        watched_.resize(ranks);
        polls_.resize(ranks, {-1, 0, 0});
    }
    polls_[rank] = {connection.number(), POLLIN | POLLRDHUP, 0};
    HideOnFork shield(connection);
    watched_[rank] = {.shown = std::move(connection),
                      .shield = std::move(shield),
                      .is_connection = true,
                      .host_ranks = host_ranks};
}

void LivenessMonitor::poll_descriptors() {
    if (polls_.empty()) return;
    // If poll fails, all ranks keep the state of the last poll; the next one comes soon.
    const bool is_news = poll(polls_.data(), polls_.size(), 0) > 0;
    for (uint32_t rank = 0; rank < watched_.size() && is_news; rank++) {
        if (polls_[rank].revents == 0) continue;
        if (watched_[rank].is_connection)
            receive_words(rank);
        else if ((polls_[rank].revents & (POLLIN | POLLHUP)) != 0)
            watched_[rank].has_ended = true;
        // No later event of this rank matters.
        if (watched_[rank].has_ended || watched_[rank].has_left) polls_[rank].fd = -1;
    }
    for (const WatchedDescriptor &watched : watched_)
        if (std::atomic_ref(watched.is_silent).load(std::memory_order_relaxed))
            for (const uint32_t rank : watched.host_ranks) watched_[rank].has_ended = true;
}

namespace {

// The messages on a connection: a goodbye is the first byte alone, a failure is the whole struct.
struct KeepaliveWord {
    static constexpr char goodbye = 'f', failure = 'v';

    char what = goodbye;
    Error error;
};

} // namespace

void LivenessMonitor::send_word(const WatchedDescriptor &watched, const void *word, size_t bytes) {
    if (send(watched.shown.number(), word, bytes, MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
        note_silence(watched);
}

// Reads the errno of the call that has just failed.
void LivenessMonitor::note_silence(const WatchedDescriptor &watched) {
    if (errno == ETIMEDOUT || errno == EHOSTUNREACH || errno == ENETUNREACH || errno == ENETDOWN)
        std::atomic_ref(watched.is_silent).store(true, std::memory_order_relaxed);
}

void LivenessMonitor::receive_words(uint32_t rank) {
    WatchedDescriptor &watched = watched_[rank];
    const auto read = [&](KeepaliveWord &word, size_t bytes, int flags) {
        return recv(watched.shown.number(), &word, bytes, MSG_DONTWAIT | flags);
    };
    KeepaliveWord word;
    const ssize_t got = read(word, sizeof word, MSG_PEEK);
    const bool is_failure = got > 0 && word.what == KeepaliveWord::failure;
    if (is_failure && got < static_cast<ssize_t>(sizeof word)) return; // the rest has not come yet
    if (got > 0) read(word, is_failure ? sizeof word : 1, 0);
    if (is_failure) {
        received_error_ = {rank, word.error};
    } else if (got > 0) {
        watched.has_left = true;
    } else if (got == 0 || (errno != EAGAIN && errno != EINTR)) {
        watched.has_ended = true;
        if (got < 0) note_silence(watched);
    }
}

void LivenessMonitor::send_goodbye() const {
    for (const WatchedDescriptor &watched : watched_)
        if (watched.is_connection) send_word(watched, &KeepaliveWord::goodbye, 1);
}

void LivenessMonitor::send_error(const Error &error) const {
    const KeepaliveWord word{KeepaliveWord::failure, error};
    for (const WatchedDescriptor &watched : watched_)
        if (watched.is_connection) send_word(watched, &word, sizeof word);
}

} // namespace qccl
