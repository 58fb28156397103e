// Tests lib/net/fd_exchange: every rank gets the descriptors of all ranks, in rank order, also if
// there are many. Strangers, garbage and silent connections delay no rank and leak no descriptor.
#include "tests/kit/open_descriptors.hpp"
#include "tests/kit/rank_threads.hpp"
#include "tests/transport/transport_ranks.hpp"

#include "net/fd_exchange.hpp"

#include <fcntl.h>
#include <numeric>
#include <optional>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>

using namespace qccl;
using namespace qtest;

namespace {

// Returns a memory file that contains a number, by which the test recognizes it.
FileDescriptor numbered(uint64_t number) {
    FileDescriptor file(memfd_create("test", MFD_CLOEXEC));
    CHECK_EQ(write(file.number(), &number, sizeof number), static_cast<ssize_t>(sizeof number));
    return file;
}

uint64_t number_in(const FileDescriptor &file) {
    uint64_t number = 0;
    CHECK_EQ(pread(file.number(), &number, sizeof number, 0), static_cast<ssize_t>(sizeof number));
    return number;
}

FdPair pair_of(uint32_t rank) { return {numbered(rank * 2), numbered(rank * 2 + 1)}; }

void check_pairs(const Result<std::vector<FdPair>> &all, uint32_t size) {
    CHECK_OK(all);
    CHECK_EQ(all->size(), size);
    for (uint32_t rank = 0; rank < size; rank++)
        for (uint32_t i = 0; i < 2; i++) CHECK_EQ(number_in((*all)[rank][i]), rank * 2 + i);
}

std::vector<uint32_t> first_ranks(uint32_t size) {
    std::vector<uint32_t> ranks(size);
    std::iota(ranks.begin(), ranks.end(), 0U);
    return ranks;
}

Result<std::vector<FdPair>> join(const FdExchangeAddress &star, uint32_t rank, uint32_t size,
                                 FdPair mine, std::chrono::nanoseconds timeout) {
    QCCL_TRY(FdExchangeClient ray, FdExchangeClient::open());
    return ray.join(star, rank, first_ranks(size), std::move(mine), timeout);
}

FileDescriptor connect_to(const FdExchangeAddress &star) {
    FileDescriptor connection(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    const AbstractAddress address(star.name);
    CHECK_EQ(connect(connection.number(), address.get(), address.bytes), 0);
    return connection;
}

// Serves in this thread while `guests` runs in another. Throws the failure of either.
void serve_with(uint32_t size, const std::function<void(const FdExchangeAddress &)> &guests) {
    auto star = FdExchangeServer::open();
    CHECK_OK(star);
    std::string said;
    std::thread others([&] {
        try {
            guests(star->address());
        } catch (const Failure &failure) {
            said = failure.text;
        }
    });
    const auto all = star->serve(pair_of(0), first_ranks(size), 20s);
    others.join();
    if (!said.empty()) throw Failure{said};
    check_pairs(all, size);
}

void everyone_gets_everything() {
    const size_t before = count_descriptors();
    // There are more pairs than fit into one message. All ranks are in this process.
    constexpr uint32_t size = pairs_per_message + 10;
    rlimit limit{};
    CHECK_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
    if (limit.rlim_max < 2 * size * size + 500) {
        std::fprintf(stderr, "skipped: ulimit -Hn is %llu\n",
                     static_cast<unsigned long long>(limit.rlim_max));
        return;
    }
    // An ordinary user's limit is low until the process raises it.
    const DescriptorLimit raised(limit.rlim_max);
    serve_with(size, [&](const FdExchangeAddress &address) {
        on_each_thread(size, [&](size_t i) {
            const auto rank = static_cast<uint32_t>(i);
            if (rank != 0) check_pairs(join(address, rank, size, pair_of(rank), 20s), size);
        });
    });
    CHECK_EQ(count_descriptors(), before);
}

void strangers_delay_nobody() {
    const size_t before = count_descriptors();
    const auto start = Clock::now();
    serve_with(2, [](const FdExchangeAddress &address) {
        std::vector<FileDescriptor> strangers;
        // There are more silent connections than the server keeps.
        for (int i = 0; i < 100; i++) strangers.push_back(connect_to(address));
        strangers.push_back(connect_to(address));
        CHECK_EQ(::send(strangers.back().number(), "GET / HTTP/1.1\r\n", 16, MSG_NOSIGNAL), 16);
        strangers.push_back(connect_to(address));
        const char zeros[4096] = {};
        CHECK_EQ(::send(strangers.back().number(), zeros, sizeof zeros, MSG_NOSIGNAL), 4096);
        // One client brings descriptors but not the cookie.
        FdExchangeAddress wrong = address;
        wrong.cookie[0] ^= std::byte{1};
        const auto refused = join(wrong, 1, 2, pair_of(1), 5s);
        CHECK(!refused);
        // One client claims a rank that does not exist, and one claims to be rank 0.
        CHECK(!join(address, 2, 2, pair_of(1), 5s));
        CHECK(!join(address, 0, 2, pair_of(1), 5s));
        check_pairs(join(address, 1, 2, pair_of(1), 5s), 2);
    });
    CHECK(Clock::now() - start < 4s);
    CHECK_EQ(count_descriptors(), before);
}

// A rank brings the descriptors of one rank, and a second pair makes its message invalid.
void who_brings_too_much_is_turned_away() {
    serve_with(2, [](const FdExchangeAddress &address) {
        const FileDescriptor other = connect_to(address);
        const FdPair pairs[] = {pair_of(7), pair_of(8)};
        CHECK_EQ(send_fds(other, {address.cookie, 1, 2}, pairs, Clock::now() + 5s), 0);
        CHECK(await(other, POLLIN, Clock::now() + 5s)); // its end
        check_pairs(join(address, 1, 2, pair_of(1), 5s), 2);
    });
}

// A rank that leaves before it gets the descriptors of all is no error of the server's.
void who_leaves_early_is_served_in_vain() {
    auto star = FdExchangeServer::open();
    CHECK_OK(star);
    {
        const FileDescriptor rank_1 = connect_to(star->address());
        const FdPair pair = pair_of(1);
        CHECK_EQ(send_fds(rank_1, {star->address().cookie, 1, 1}, &pair, Clock::now() + 5s), 0);
    }
    check_pairs(star->serve(pair_of(0), first_ranks(2), 5s), 2);
}

// The pairs come in the order of the ranks.
void a_server_without_order_is_named() {
    const auto name = draw_name();
    CHECK_OK(name);
    const FdExchangeAddress address{.name = *name};
    const FileDescriptor listener(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    const AbstractAddress bound(address.name);
    CHECK_EQ(bind(listener.number(), bound.get(), bound.bytes), 0);
    CHECK_EQ(listen(listener.number(), 1), 0);
    std::thread server([&] {
        const FileDescriptor rank_1(accept(listener.number(), nullptr, nullptr));
        const FdPair pair = pair_of(1);
        (void)send_fds(rank_1, {address.cookie, 1, 1}, &pair, Clock::now() + 5s);
        (void)await(rank_1, POLLHUP, Clock::now() + 5s);
    });
    const auto joined = join(address, 1, 2, pair_of(1), 5s);
    server.join();
    CHECK(!joined);
    CHECK_EQ(std::string(joined.error().text),
             std::string("rank 0 passed shared memory out of order"));
}

// Connects as rank 1 in a process of the user nobody.
void knock_as_another_user(const FdExchangeAddress &address) {
    const pid_t pid = fork();
    if (pid == 0) {
        if (setresuid(65534, 65534, 65534) != 0) _exit(2);
        const auto joined = join(address, 1, 2, pair_of(1), 5s);
        if (joined) _exit(1);
        const std::string_view said = joined.error().text;
        _exit(said.starts_with("rank 0 runs as user 0, rank 1 as user 65534: ") ? 0 : 3);
    }
    int status = 0;
    waitpid(pid, &status, 0);
    CHECK_EQ(status, 0);
}

void another_user_is_turned_away() {
    if (geteuid() != 0) return; // only root can become another user
    serve_with(2, [](const FdExchangeAddress &address) {
        knock_as_another_user(address);
        check_pairs(join(address, 1, 2, pair_of(1), 5s), 2);
    });

    // Nor does the server take anything from a process of another user that knows the cookie.
    serve_with(2, [](const FdExchangeAddress &address) {
        const pid_t pid = fork();
        if (pid == 0) {
            if (setresuid(65534, 65534, 65534) != 0) _exit(2);
            const FileDescriptor other = connect_to(address);
            const FdPair pair = pair_of(7);
            (void)send_fds(other, {address.cookie, 1, 1}, &pair, Clock::now() + 5s);
            _exit(await(other, POLLIN, Clock::now() + 5s) ? 0 : 3); // its end
        }
        int status = 0;
        waitpid(pid, &status, 0);
        CHECK_EQ(status, 0);
        check_pairs(join(address, 1, 2, pair_of(1), 5s), 2);
    });

    auto star = FdExchangeServer::open();
    CHECK_OK(star);
    knock_as_another_user(star->address());
    const auto all = star->serve(pair_of(0), first_ranks(2), 200ms);
    CHECK(!all);
    CHECK_EQ(all.error().rank, 1);
    CHECK(std::string_view(all.error().text)
              .ends_with("; a process of user 65534 came and was "
                         "turned away, because rank 0 runs as user 0"));
}

// Serves with `spare` descriptors left, while another process joins as rank 1, after `silent`
// strangers. Returns what rank 0 gets; rank 1 has got the same.
Result<std::vector<FdPair>> serve_with_few_descriptors(rlim_t spare, int silent = 0) {
    auto star = FdExchangeServer::open();
    CHECK_OK(star);
    const FdExchangeAddress address = star->address();
    const pid_t pid = fork();
    if (pid == 0) {
        star = Error::make(Code::success, "only the parent serves");
        std::vector<FileDescriptor> strangers;
        for (int i = 0; i < silent; i++) strangers.push_back(connect_to(address));
        _exit(join(address, 1, 2, pair_of(1), 5s) ? 0 : 1);
    }
    FdPair mine = pair_of(0);
    auto all = [&] {
        const DescriptorLimit limit(DescriptorLimit::with_spare(spare));
        return star->serve(std::move(mine), first_ranks(2), 20s);
    }();
    star = Error::make(Code::success, "it closes the door");
    int status = 0;
    waitpid(pid, &status, 0);
    CHECK_EQ(status, all ? 0 : 1 << 8);
    return all;
}

bool hides_limit() { // valgrind does
    const char *const preloaded = std::getenv("LD_PRELOAD");
    return preloaded && std::strstr(preloaded, "vgpreload");
}

void too_few_descriptors_are_told_at_once() {
    if (hides_limit()) return;
    const auto error_with = [](rlim_t spare) {
        const auto all = serve_with_few_descriptors(spare);
        CHECK(!all);
        return std::string(all.error().text);
    };
    const auto start = Clock::now();
    CHECK(error_with(0).starts_with(
        "cannot accept a rank's connection: Too many open files (the limit of open files"));
    for (const rlim_t spare : {1U, 2U})
        CHECK(error_with(spare).starts_with(
            "cannot take a rank's shared memory: Too many open files"));
    CHECK(Clock::now() - start < 5s);
}

void strangers_leave_descriptors_to_ranks() {
    if (hides_limit()) return;
    check_pairs(serve_with_few_descriptors(20, 40), 2);
}

// Runs `body` in a child process without any privileges, which may open `most` descriptors.
void as_ordinary_user(rlim_t most, const std::function<void()> &body) {
    struct Said {
        char text[1024] = {};
    };
    const Shared<Said> said;
    const pid_t pid = fork();
    if (pid == 0) {
        const rlimit low{most, most};
        try {
            CHECK_EQ(setrlimit(RLIMIT_NOFILE, &low), 0);
            CHECK_EQ(setresuid(65534, 65534, 65534), 0);
            body();
        } catch (const Failure &failure) {
            std::snprintf(said->text, sizeof said->text, "%s", failure.text.c_str());
        }
        _exit(said->text[0] != 0);
    }
    int status = 0;
    waitpid(pid, &status, 0);
    if (said->text[0]) throw Failure{said->text};
    CHECK_EQ(status, 0);
}

// Sends more descriptors than the user may have in flight, and lets no process receive them. They
// are gone when both returned descriptors are closed.
std::pair<FileDescriptor, FileDescriptor> crowd_the_way(rlim_t most) {
    int ends[2];
    CHECK_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    std::pair<FileDescriptor, FileDescriptor> way(ends[0], ends[1]);
    const auto pairs = static_cast<uint32_t>(most / 2 + 1);
    std::vector<FdPair> many(pairs);
    for (FdPair &pair : many) pair = {FileDescriptor(0), FileDescriptor(0)};
    const int reason = send_fds(way.first, {{}, 0, pairs}, many.data(), Clock::now() + 5s);
    for (FdPair &pair : many)
        for (FileDescriptor &each : pair) (void)each.release();
    CHECK_EQ(reason, 0);
    return way;
}

// The number of descriptors that a user may have in flight is bounded by the number of descriptors
// that the process may open. A rank that hits that bound waits until descriptors are received.
void crowded_ways_cost_time_only() {
    if (geteuid() != 0) return print_message("skipped: only root can become another user\n");
    constexpr rlim_t most = 32;
    as_ordinary_user(most, [] {
        const auto start = Clock::now();
        serve_with(2, [start](const FdExchangeAddress &address) {
            auto way = crowd_the_way(most);
            std::thread clearing([&] {
                std::this_thread::sleep_until(start + 300ms);
                way = {};
            });
            auto joined = join(address, 1, 2, pair_of(1), 20s);
            clearing.join();
            check_pairs(joined, 2);
        });
        CHECK(Clock::now() - start > 300ms);
    });
}

void ways_that_stay_crowded_are_told() {
    if (geteuid() != 0) return print_message("skipped: only root can become another user\n");
    constexpr rlim_t most = 32;
    as_ordinary_user(most, [] {
        auto star = FdExchangeServer::open();
        CHECK_OK(star);
        const FdExchangeAddress address = star->address();
        std::optional<std::pair<FileDescriptor, FileDescriptor>> way = crowd_the_way(most);
        const auto joined = join(address, 1, 2, pair_of(1), 100ms);
        CHECK(!joined);
        CHECK_EQ(std::string(joined.error().text),
                 std::string("cannot pass shared memory to rank 0: user 65534 has sent more than "
                             "32 descriptors (ulimit -n) that nobody has received yet"));

        // Rank 1 connects, but the server cannot send anything to it.
        way.reset();
        const FileDescriptor rank_1 = connect_to(address);
        const FdPair pair = pair_of(1);
        CHECK_EQ(send_fds(rank_1, {address.cookie, 1, 1}, &pair, Clock::now() + 5s), 0);
        way = crowd_the_way(most);
        const auto all = star->serve(pair_of(0), first_ranks(2), 100ms);
        CHECK(!all);
        CHECK_EQ(std::string(all.error().text),
                 std::string("cannot pass shared memory to rank 1: user 65534 has sent more than "
                             "32 descriptors (ulimit -n) that nobody has received yet"));
    });
}

// The kernel queues a few messages for a process that does not read, and no more. The sender then
// waits until its deadline.
void nobody_waits_for_ever_for_a_reader() {
    int ends[2];
    CHECK_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    const FileDescriptor writer(ends[0]), silent(ends[1]);
    const FdPair pair = pair_of(0);
    const auto start = Clock::now();
    int reason = 0;
    for (int i = 0; i < 10000 && reason == 0; i++)
        reason = send_fds(writer, {{}, 0, 1}, &pair, Clock::now() + 50ms);
    CHECK_EQ(reason, EAGAIN);
    CHECK(Clock::now() - start > 50ms);

    // The message gets through if the process reads in time.
    std::thread reader([&] {
        std::this_thread::sleep_for(50ms);
        while (receive_fds(silent, {})) {}
    });
    reason = send_fds(writer, {{}, 0, 1}, &pair, Clock::now() + 20s);
    reader.join();
    CHECK_EQ(reason, 0);
}

// A server closes its connections as soon as it has sent everything. Without a second look, about
// one of 20,000 messages here is taken for the end of the connection.
void a_message_comes_before_the_end() {
    const FdPair pair = pair_of(0);
    std::atomic<int> given{-1};
    std::atomic<bool> is_over{false};
    std::thread sender([&] {
        while (!is_over) {
            const FileDescriptor end(given.load());
            if (!end.is_open()) {
                std::this_thread::yield();
                continue;
            }
            (void)send_fds(end, {{}, 0, 1}, &pair, Clock::now() + 20s);
            given = -1;
        }
    });
    // On a loaded machine each message waits for its thread's turn, so the time is limited, too.
    constexpr int most_messages = 100000;
    const auto end = Clock::now() + 20s;
    int sent = 0, came = 0;
    for (; sent < most_messages && Clock::now() < end; sent++) {
        int ends[2];
        if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) break;
        const FileDescriptor receiver(ends[1]);
        given = ends[0];
        std::optional<ReceivedFds> received;
        do received = receive_fds(receiver, {});
        while (!received && errno == EAGAIN);
        came += received.has_value();
        while (given != -1) std::this_thread::yield();
    }
    is_over = true;
    sender.join();
    CHECK(sent > 100);
    CHECK_EQ(came, sent);
}

// An empty message reads like the end, and may carry descriptors all the same.
void an_empty_message_leaks_nothing() {
    int ends[2];
    CHECK_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    const FileDescriptor stranger(ends[0]), receiver(ends[1]);
    const size_t before = count_descriptors();
    alignas(cmsghdr) std::byte control[CMSG_SPACE(sizeof(int))] = {};
    msghdr packet{};
    packet.msg_control = control;
    packet.msg_controllen = sizeof control;
    cmsghdr *const header = CMSG_FIRSTHDR(&packet);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    const int number = stranger.number();
    std::memcpy(CMSG_DATA(header), &number, sizeof number);
    CHECK_EQ(sendmsg(stranger.number(), &packet, MSG_NOSIGNAL), 0);
    CHECK(!receive_fds(receiver, {}));
    CHECK_EQ(count_descriptors(), before);
}

void rank_0_is_named_where_it_gives_nothing() {
    auto star = FdExchangeServer::open();
    CHECK_OK(star);
    const FdExchangeAddress address = star->address();
    // The deadline holds however often a signal interrupts the wait.
    struct sigaction nothing {};
    nothing.sa_handler = [](int) {};
    CHECK_EQ(sigaction(SIGUSR1, &nothing, nullptr), 0);
    std::atomic<bool> is_over{false};
    std::thread nuisance([&, waiter = pthread_self()] {
        while (!is_over) {
            pthread_kill(waiter, SIGUSR1);
            std::this_thread::sleep_for(10ms);
        }
    });
    const auto start = Clock::now();
    const auto late = join(address, 1, 2, pair_of(1), 200ms);
    is_over = true;
    nuisance.join();
    CHECK(Clock::now() - start < 5s);
    CHECK(!late);
    CHECK(late.error().code == Code::timeout);
    CHECK_EQ(late.error().rank, 0);
    CHECK_EQ(std::string(late.error().text),
             std::string("rank 0 does not pass on the ranks' shared memory"));

    std::thread ending([&] {
        std::this_thread::sleep_for(50ms);
        star = Error::make(Code::success, "it closes the door");
    });
    for (int i = 0; i < 2; i++) { // the server leaves during the wait; the server has left before
        const auto lost = join(address, 1, 2, pair_of(1), 20s);
        if (i == 0) ending.join();
        CHECK(!lost);
        CHECK(lost.error().code == Code::peer_lost);
        CHECK_EQ(lost.error().rank, 0);
    }
}

void who_does_not_come_is_named() {
    const size_t before = count_descriptors();
    {
        auto star = FdExchangeServer::open();
        CHECK_OK(star);
        const auto all = star->serve(pair_of(0), first_ranks(3), 50ms);
        CHECK(!all);
        CHECK_EQ(all.error().rank, 1);
        CHECK_EQ(std::string(all.error().text),
                 std::string("rank 1 did not connect to exchange shared memory"));
    }
    CHECK_EQ(count_descriptors(), before);
}

// The server stops waiting for a rank as soon as `cancel_check` reports that the rank is gone.
void a_vain_wait_ends_early() {
    auto star = FdExchangeServer::open();
    CHECK_OK(star);
    const auto begin = Clock::now();
    const CancelCheck cancel_check = [&]() -> Done {
        if (Clock::now() - begin < 50ms) return {};
        return Error::make(Code::peer_lost, "rank 1 is gone");
    };
    const auto served = star->serve(FdPair{}, first_ranks(2), 60s, cancel_check);
    CHECK(!served);
    CHECK_EQ(std::string(served.error().text), std::string("rank 1 is gone"));
    CHECK(Clock::now() - begin < 30s);
}

} // namespace

int main() {
    const CMUnitTest tests[] = {
        QTEST(everyone_gets_everything),
        QTEST(strangers_delay_nobody),
        QTEST(who_brings_too_much_is_turned_away),
        QTEST(who_leaves_early_is_served_in_vain),
        QTEST(a_server_without_order_is_named),
        QTEST(another_user_is_turned_away),
        QTEST(strangers_leave_descriptors_to_ranks),
        QTEST(too_few_descriptors_are_told_at_once),
        QTEST(crowded_ways_cost_time_only),
        QTEST(ways_that_stay_crowded_are_told),
        QTEST(nobody_waits_for_ever_for_a_reader),
        QTEST(a_message_comes_before_the_end),
        QTEST(an_empty_message_leaks_nothing),
        QTEST(rank_0_is_named_where_it_gives_nothing),
        QTEST(who_does_not_come_is_named),
        QTEST(a_vain_wait_ends_early),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
