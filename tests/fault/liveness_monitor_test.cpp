// Tests LivenessMonitor of lib/fault/liveness: it sees that a process lives and that it has ended,
// by pidfd, by pipe and by connection, and ranks over shm work without pidfds.
#include "tests/kit/forbidden_call.hpp"
#include "tests/transport/transport_ways.hpp"

#include "fault/liveness.hpp"
#include "net/fd_exchange.hpp"

#include <csignal>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/syscall.h>

using namespace qccl;
using namespace qtest;

namespace {

FileDescriptor copy_of(const FileDescriptor &one) { return FileDescriptor(dup(one.number())); }

// A child process opens its ProcessLiveness, sends it to this process and lives until it is killed.
void an_end_is_seen(Result<ProcessLiveness> (*open)()) {
    static constexpr uint32_t ranks[] = {0, 1};
    auto star = FdExchangeServer::open();
    CHECK_OK(star);
    const pid_t child = fork();
    if (child == 0) {
        auto own = open();
        auto ray = FdExchangeClient::open();
        if (!own || !ray ||
            !ray->join(star->address(), 1, ranks, {copy_of(own->shown), copy_of(own->shown)}, 5s))
            _exit(1);
        for (;;) pause();
    }
    auto own = open();
    CHECK_OK(own);
    auto pairs = star->serve({std::move(own->shown), FileDescriptor(dup(0))}, ranks, 5s);
    CHECK_OK(pairs);
    std::vector<FileDescriptor> shown;
    for (FdPair &pair : *pairs) shown.push_back(std::move(pair[0]));
    LivenessMonitor liveness(std::move(shown), std::move(own->held));
    liveness.poll_descriptors();
    CHECK(!liveness.has_ended(0) && !liveness.has_ended(1));
    kill(child, SIGKILL);
    await([&] {
        liveness.poll_descriptors();
        return liveness.has_ended(1);
    });
    CHECK(!liveness.has_ended(0));
    waitpid(child, nullptr, 0);
}

// The killed process has a forked child that lives on; its end must be seen nevertheless.
void a_child_that_goes_on_hides_no_end() {
    const Shared<Meeting> meeting(1U);
    int pair[2];
    CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    auto life = ProcessLiveness::open_pipe();
    CHECK_OK(life);
    const pid_t parent = fork();
    if (parent == 0) {
        close(pair[0]);
        LivenessMonitor liveness({}, std::move(life->held));
        liveness.add_connection(0, {0}, FileDescriptor(pair[1]));
        const pid_t child = fork();
        if (child != 0) meeting->board[0] = static_cast<uint64_t>(child);
        for (;;) pause();
    }
    close(pair[1]);
    life->held = FileDescriptor();
    await([&] { return meeting->board[0] != 0; });
    std::vector<FileDescriptor> shown;
    shown.push_back(std::move(life->shown));
    LivenessMonitor liveness(std::move(shown), {});
    liveness.add_connection(1, {1}, FileDescriptor(pair[0]));
    liveness.poll_descriptors();
    CHECK(!liveness.has_ended(0) && !liveness.has_ended(1));
    kill(parent, SIGKILL);
    waitpid(parent, nullptr, 0);
    const auto killed = Clock::now();
    while (Clock::now() - killed < 5s && !(liveness.has_ended(0) && liveness.has_ended(1)))
        liveness.poll_descriptors();
    kill(static_cast<pid_t>(meeting->board[0].load()), SIGKILL);
    CHECK(liveness.has_ended(0));
    CHECK(liveness.has_ended(1));
}

struct Connection {
    FileDescriptor here, there;
};

Connection connect_here() {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t bytes = sizeof address;
    auto *const any = reinterpret_cast<sockaddr *>(&address);
    const FileDescriptor listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    CHECK_EQ(bind(listener.number(), any, bytes), 0);
    CHECK_EQ(listen(listener.number(), 1), 0);
    CHECK_EQ(getsockname(listener.number(), any, &bytes), 0);
    Connection made{FileDescriptor(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)), {}};
    CHECK_EQ(connect(made.here.number(), any, bytes), 0);
    made.there = FileDescriptor(accept4(listener.number(), nullptr, nullptr, SOCK_CLOEXEC));
    CHECK(made.there.is_open());
    return made;
}

// If a host stops answering, all its ranks count as ended. If a process ends, only its rank does.
void check_silence(bool sends) {
    Connection ended = connect_here(), silent = connect_here();
    // For TCP, data that the other end does not take counts as silence.
    const int longest_silence_ms = 50;
    setsockopt(silent.here.number(), IPPROTO_TCP, TCP_USER_TIMEOUT, &longest_silence_ms,
               sizeof longest_silence_ms);
    const std::vector<char> much(1 << 16);
    while (send(silent.here.number(), much.data(), much.size(), MSG_DONTWAIT) > 0) {}
    LivenessMonitor liveness;
    liveness.add_connection(1, {0, 1, 2}, std::move(ended.here));
    liveness.add_connection(4, {3, 4, 5}, std::move(silent.here));
    ended.there = FileDescriptor();
    const auto begin = Clock::now();
    for (; sends && Clock::now() - begin < 1s; std::this_thread::sleep_for(1ms))
        liveness.send_goodbye();
    while (Clock::now() - begin < 20s && !(liveness.has_ended(1) && liveness.has_ended(4)))
        liveness.poll_descriptors();
    for (uint32_t rank = 0; rank < 6; rank++)
        CHECK_EQ(liveness.has_ended(rank), rank != 0 && rank != 2);
}

void a_silent_host_has_lost_all_its_ranks() { check_silence(false); }
// The kernel reports the silence once, here to a send.
void who_says_something_learns_of_silence() { check_silence(true); }

// A connection may deliver a failure in parts.
void a_failure_in_parts_is_received_whole() {
    int from[2], to[2];
    CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, from), 0);
    CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, to), 0);
    const FileDescriptor sent(from[0]), comes(to[0]);
    LivenessMonitor sender, receiver;
    sender.add_connection(1, {1}, FileDescriptor(from[1]));
    receiver.add_connection(1, {1}, FileDescriptor(to[1]));
    sender.send_error(Error::make(Code::revoked, "enough"));
    std::array<char, 4096> word{};
    const ssize_t bytes = recv(sent.number(), word.data(), word.size(), 0);
    CHECK(bytes > 1);
    ssize_t begin = 0;
    for (const ssize_t end : {ssize_t{1}, bytes / 2, bytes}) {
        CHECK(!receiver.received_error());
        CHECK_EQ(send(comes.number(), word.data() + begin, static_cast<size_t>(end - begin), 0),
                 end - begin);
        receiver.poll_descriptors();
        CHECK(!receiver.has_left(1) && !receiver.has_ended(1));
        begin = end;
    }
    CHECK(receiver.received_error().has_value());
    CHECK_EQ(std::string(receiver.received_error()->error.text), std::string("enough"));
}

void ends_are_seen_by_pidfd() { an_end_is_seen(&ProcessLiveness::open); }
void ends_are_seen_by_pipe() { an_end_is_seen(&ProcessLiveness::open_pipe); }

// Some ranks have pidfds and some have none; the rank that dies has none.
void shm_does_without_pidfds() {
    for (const int error : {ENOSYS, EPERM}) {
        std::vector<pid_t> pids;
        const Shared<Meeting> meeting(3U);
        const auto body = [&](const Rank &rank) {
            if (rank.rank != 0) forbid(SYS_pidfd_open, error);
            const auto transport = create(rank);
            rank.meeting.board[0]++;
            const Error failure = run_until_failure(*transport, 1, Way::mailbox);
            CHECK(failure.code == Code::peer_lost);
            CHECK_EQ(failure.rank, 1);
        };
        const auto watch = [&](const std::vector<pid_t> &all) {
            await([&] { return meeting->board[0] == 3; });
            kill(all[1], SIGKILL);
        };
        const auto statuses = run_ranks(*meeting, Kind::shm, body, small_options(), watch);
        CHECK(WIFSIGNALED(statuses[1]));
    }
}

} // namespace

int main() {
    const CMUnitTest tests[] = {
        QTEST(ends_are_seen_by_pidfd),
        QTEST(ends_are_seen_by_pipe),
        QTEST(shm_does_without_pidfds),
        QTEST(a_child_that_goes_on_hides_no_end),
        QTEST(a_failure_in_parts_is_received_whole),
        QTEST(a_silent_host_has_lost_all_its_ranks),
        QTEST(who_says_something_learns_of_silence),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
