// transport/lifelines: a process is seen to live and to end, by pidfd and by pipe, and ranks over
// shm do without pidfds where the system has none.
#include "forbidden_call.hpp"
#include "transport_ways.hpp"

#include "transport/fd_star.hpp"
#include "transport/lifelines.hpp"

#include <csignal>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/syscall.h>

using namespace qccl;
using namespace qtest;

namespace {

FileDescriptor copy_of(const FileDescriptor &one) { return FileDescriptor(dup(one.number())); }

// A child opens its lifeline, hands it over and lives until it is killed.
void an_end_is_seen(Result<Lifeline> (*open)()) {
    static constexpr uint32_t ranks[] = {0, 1};
    auto star = FdStar::open();
    CHECK_OK(star);
    const pid_t child = fork();
    if (child == 0) {
        auto own = open();
        auto ray = FdRay::open();
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
    Lifelines lifelines(std::move(shown), std::move(own->held));
    lifelines.look();
    CHECK(!lifelines.has_ended(0) && !lifelines.has_ended(1));
    kill(child, SIGKILL);
    await([&] {
        lifelines.look();
        return lifelines.has_ended(1);
    });
    CHECK(!lifelines.has_ended(0));
    waitpid(child, nullptr, 0);
}

// What a process has forked lives on.
void a_child_that_goes_on_hides_no_end() {
    const Shared<Meeting> meeting(1U);
    int pair[2];
    CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    auto life = Lifeline::open_pipe();
    CHECK_OK(life);
    const pid_t parent = fork();
    if (parent == 0) {
        close(pair[0]);
        Lifelines lifelines({}, std::move(life->held));
        lifelines.add_connection(0, {0}, FileDescriptor(pair[1]));
        const pid_t child = fork();
        if (child != 0) meeting->board[0] = static_cast<uint64_t>(child);
        for (;;) pause();
    }
    close(pair[1]);
    life->held = FileDescriptor();
    await([&] { return meeting->board[0] != 0; });
    std::vector<FileDescriptor> shown;
    shown.push_back(std::move(life->shown));
    Lifelines lifelines(std::move(shown), {});
    lifelines.add_connection(1, {1}, FileDescriptor(pair[0]));
    lifelines.look();
    CHECK(!lifelines.has_ended(0) && !lifelines.has_ended(1));
    kill(parent, SIGKILL);
    waitpid(parent, nullptr, 0);
    const auto killed = Clock::now();
    while (Clock::now() - killed < 5s && !(lifelines.has_ended(0) && lifelines.has_ended(1)))
        lifelines.look();
    kill(static_cast<pid_t>(meeting->board[0].load()), SIGKILL);
    CHECK(lifelines.has_ended(0));
    CHECK(lifelines.has_ended(1));
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

// A host that falls silent takes all its ranks with it; a process that ends takes none.
void check_silence(bool sends) {
    Connection ended = connect_here(), silent = connect_here();
    // What the other end does not take is a silence to TCP.
    const int longest_silence_ms = 50;
    setsockopt(silent.here.number(), IPPROTO_TCP, TCP_USER_TIMEOUT, &longest_silence_ms,
               sizeof longest_silence_ms);
    const std::vector<char> much(1 << 16);
    while (send(silent.here.number(), much.data(), much.size(), MSG_DONTWAIT) > 0) {}
    Lifelines lifelines;
    lifelines.add_connection(1, {0, 1, 2}, std::move(ended.here));
    lifelines.add_connection(4, {3, 4, 5}, std::move(silent.here));
    ended.there = FileDescriptor();
    const auto begin = Clock::now();
    for (; sends && Clock::now() - begin < 1s; std::this_thread::sleep_for(1ms))
        lifelines.say_farewell();
    while (Clock::now() - begin < 20s && !(lifelines.has_ended(1) && lifelines.has_ended(4)))
        lifelines.look();
    for (uint32_t rank = 0; rank < 6; rank++)
        CHECK_EQ(lifelines.has_ended(rank), rank != 0 && rank != 2);
}

void a_silent_host_has_lost_all_its_ranks() { check_silence(false); }
// The system tells it once.
void who_says_something_learns_of_silence() { check_silence(true); }

void ends_are_seen_by_pidfd() { an_end_is_seen(&Lifeline::open); }
void ends_are_seen_by_pipe() { an_end_is_seen(&Lifeline::open_pipe); }

// Some ranks have pidfds and some have not; the one that dies has none.
void shm_does_without_pidfds() {
    for (const int error : {ENOSYS, EPERM}) {
        std::vector<pid_t> pids;
        const Shared<Meeting> meeting(3U);
        const auto body = [&](const Rank &rank) {
            if (rank.rank != 0) forbid(SYS_pidfd_open, error);
            const auto transport = create(rank);
            rank.meeting.board[0]++;
            const Error failure = run_until_failure(*transport, 1, Way::mail);
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
        QTEST(a_silent_host_has_lost_all_its_ranks),
        QTEST(who_says_something_learns_of_silence),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
