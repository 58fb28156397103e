// Tests the bootstrap with ranks that are processes and die, stop, leave, fork or exit: the other
// ranks learn which rank it was, and no thread or descriptor is left behind.
#include "tests/kit/open_descriptors.hpp"
#include "rank_processes.hpp"
#include "tests/kit/sanitizer.h"

#include "base/system.hpp"
#include "bootstrap/rendezvous_protocol.hpp"

#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>

#include <sys/resource.h>
#include <sys/wait.h>

using namespace kit;

static void processes_meet_too() {
    const UniqueId id = make_id();
    Processes ranks;
    for (uint32_t rank = 0; rank < 4; rank++)
        ranks.start([&] { return join_and_exchange(id, 4, rank); });
    for (size_t rank = 0; rank < 4; rank++) CHECK_EQ(std::string(ranks.report(rank).text), "");
    for (size_t rank = 0; rank < 4; rank++) CHECK_EQ(ranks.report(rank).code, -1); // reported once
}

// Rank 2 dies before the others have joined, between two exchanges, or while others wait for it in
// one.
static void a_killed_rank_is_named() {
    for (const int moment : {0, 1, 2}) {
        const Timer timer;
        const UniqueId id = make_id();
        Processes ranks;
        for (uint32_t rank = 0; rank < 3; rank++)
            ranks.start([&, rank]() -> Done {
                if (rank == 1 && moment == 0) std::this_thread::sleep_for(500ms);
                QCCL_TRY(const auto bootstrap, join_unique_id(id, 3, rank, options()));
                QCCL_TRY(exchange(*bootstrap, 8, 0));
                if (moment == 2 && rank == 2) std::this_thread::sleep_for(100ms);
                if (rank == 2) raise(SIGKILL);
                if (moment == 1) std::this_thread::sleep_for(100ms);
                return exchange(*bootstrap, 8, 1);
            });
        if (moment == 0) {
            std::this_thread::sleep_for(250ms);
            kill(ranks.pids[2], SIGKILL);
        }
        for (const size_t rank : {size_t{0}, size_t{1}}) {
            const Report report = ranks.report(rank);
            CHECK_EQ(report.code, static_cast<int>(Code::peer_lost));
            CHECK_EQ(report.rank, 2);
            CHECK(std::string(report.text).find("rank 2 (process ") == 0);
        }
        CHECK(timer.seconds() < 5);
    }
}

// A rank that is in no exchange learns of the death from check().
static void a_death_shows_without_an_exchange() {
    const UniqueId id = make_id();
    Processes ranks;
    for (uint32_t rank = 0; rank < 3; rank++)
        ranks.start([&, rank]() -> Done {
            QCCL_TRY(const auto bootstrap, join_unique_id(id, 3, rank, options()));
            for (uint32_t round = 0; round < 3; round++) {
                QCCL_TRY(bootstrap->check());
                QCCL_TRY(exchange(*bootstrap, 8, round));
            }
            if (rank == 2) raise(SIGKILL);
            for (const Timer timer; timer.seconds() < 10; std::this_thread::sleep_for(5ms))
                QCCL_TRY(bootstrap->check());
            return {};
        });
    for (const size_t rank : {size_t{0}, size_t{1}}) {
        const Report report = ranks.report(rank);
        CHECK_EQ(report.code, static_cast<int>(Code::peer_lost));
        CHECK_EQ(report.rank, 2);
    }
}

// Starts rank 0 of two, which makes the id and serves the rendezvous in its process. Rank 0 calls
// `go_on` once both ranks have joined.
static UniqueId start_host(Processes &ranks, Done (*go_on)(Bootstrap &bootstrap)) {
    int ends[2];
    CHECK(pipe(ends) == 0);
    ranks.start([&]() -> Done {
        const auto id = create_unique_id(options());
        if (!id) return id.error();
        if (write(ends[1], id->data(), id->size()) < 0)
            return Error::make(Code::system_error, "write");
        QCCL_TRY(const auto bootstrap, join_unique_id(*id, 2, 0, options()));
        return go_on(*bootstrap);
    });
    close(ends[1]); // so that the read also ends if the rank dies
    UniqueId id;
    CHECK(read(ends[0], id.data(), id.size()) == static_cast<ssize_t>(id.size()));
    close(ends[0]);
    return id;
}

// The server dies with rank 0's process.
static void the_host_of_the_rendezvous_is_named() {
    Processes ranks;
    const UniqueId id = start_host(ranks, [](Bootstrap &) -> Done {
        raise(SIGKILL);
        return {};
    });
    ranks.start([&]() -> Done {
        QCCL_TRY(const auto bootstrap, join_unique_id(id, 2, 1, options()));
        // By now the connection is reset, so a send, even of the goodbye, would raise SIGPIPE.
        std::this_thread::sleep_for(100ms);
        return exchange(*bootstrap, 8, 0);
    });
    const Report report = ranks.report(1);
    CHECK_EQ(report.code, static_cast<int>(Code::peer_lost));
    CHECK_EQ(report.rank, 0);
    // Afterwards no process listens, and a rank that joins now fails at once.
    const Timer timer;
    CHECK(contains(join_and_exchange(id, 2, 1), "Connection refused"));
    CHECK(timer.seconds() < 1);
}

// A rank whose timeout ends asks the server once more which ranks are missing. A stopped server
// does not answer, so rank 0, which hosts it, is named.
static void a_stopped_host_is_not_waited_for() {
    Processes ranks;
    const UniqueId id =
        start_host(ranks, [](Bootstrap &bootstrap) { return exchange(bootstrap, 8, 0); });
    const auto bootstrap = join_unique_id(id, 2, 1, options(300ms));
    if (bootstrap) {
        kill(ranks.pids[0], SIGSTOP);
        waitpid(ranks.pids[0], nullptr, WUNTRACED); // its threads may run on for a moment
    }
    const Timer timer;
    const Done done = bootstrap ? exchange(**bootstrap, 8, 0) : Done(bootstrap.error());
    const double seconds = timer.seconds();
    kill(ranks.pids[0], SIGKILL);
    check_all_refused({done}, Code::timeout, 0, "gives no answer");
    CHECK(seconds < 4);
}

static void a_stopped_rank_costs_time_only() {
    const UniqueId id = make_id();
    Processes ranks;
    for (uint32_t rank = 0; rank < 2; rank++)
        ranks.start([&] { return join_and_exchange(id, 3, rank); });
    std::this_thread::sleep_for(100ms);
    kill(ranks.pids[1], SIGSTOP);
    ranks.start([&] { return join_and_exchange(id, 3, 2); });
    std::this_thread::sleep_for(500ms);
    kill(ranks.pids[1], SIGCONT);
    for (size_t rank = 0; rank < 3; rank++) CHECK_EQ(std::string(ranks.report(rank).text), "");
}

static void a_rank_that_left_is_named() {
    const UniqueId id = make_id();
    const auto done = crowd(2, [&](uint32_t rank) -> Done {
        QCCL_TRY(const auto bootstrap, join_unique_id(id, 2, rank, options()));
        QCCL_TRY(exchange(*bootstrap, 8, 0));
        if (rank == 1) return {};
        return exchange(*bootstrap, 8, 1);
    });
    CHECK_OK(done[1]);
    CHECK(contains(done[0], "rank 1 left before the exchange that rank 0 waits in"));
}

static void a_forked_child_leaves_its_parents_connection_alone() {
    const UniqueId id = make_id();
    auto bootstrap = join_unique_id(id, 1, 0, options());
    CHECK_OK(bootstrap);
    const pid_t child = fork();
    if (child == 0) {
        bootstrap->reset();
        _exit(0);
    }
    waitpid(child, nullptr, 0);
    CHECK_OK(exchange(**bootstrap, 8, 0));
}

static size_t server_threads() {
    size_t found = 0;
    for (const auto &task : std::filesystem::directory_iterator("/proc/self/task")) {
        std::string name;
        std::getline(std::ifstream(task.path() / "comm"), name);
        found += name == "qccl-rendezvous";
    }
    return found;
}

static bool comes_true(const std::function<bool()> &condition) {
    for (int i = 0; i < 500 && !condition(); i++) std::this_thread::sleep_for(10ms);
    return condition();
}

static void the_server_takes_no_signals_and_ends_when_all_have_left() {
    // Uses a separate process, in which nothing else opens or closes descriptors.
    Processes alone;
    alone.start([&]() -> Done {
        const size_t before = count_descriptors();
        const auto id = create_unique_id(options());
        if (!id) return id.error();
        if (!comes_true([] { return server_threads() == 1; }))
            return Error::make(Code::internal_error, "no thread");
        // This thread blocks the signal; if the server's thread did not, the handler would run
        // there.
        sigset_t blocked, pending;
        sigemptyset(&blocked);
        sigaddset(&blocked, SIGUSR1);
        pthread_sigmask(SIG_BLOCK, &blocked, nullptr);
        signal(SIGUSR1, [](int) { _exit(3); });
        kill(getpid(), SIGUSR1);
        std::this_thread::sleep_for(20ms);
        sigpending(&pending);
        if (!sigismember(&pending, SIGUSR1))
            return Error::make(Code::internal_error, "somebody took the signal");
        signal(SIGUSR1, SIG_IGN);
        QCCL_TRY(join_and_exchange(*id, 1, 0));
        if (!comes_true([&] { return server_threads() == 0 && count_descriptors() == before; }))
            return Error::make(Code::internal_error, "something stays behind");
        if (const auto unused = create_unique_id(options(100ms)); !unused) return unused.error();
        if (!comes_true([&] { return server_threads() == 0 && count_descriptors() == before; }))
            return Error::make(Code::internal_error, "the unused rendezvous stays");
        return {};
    });
    CHECK_EQ(std::string(alone.report(0).text), "");
}

// This process can open only so many descriptors more.
static void leave_descriptors(int count) {
    std::vector<FileDescriptor> left;
    for (int i = 0; i < count; i++) left.emplace_back(dup(0));
    rlimit low{};
    getrlimit(RLIMIT_NOFILE, &low);
    low.rlim_cur = static_cast<rlim_t>(left.back().number()) + 1;
    setrlimit(RLIMIT_NOFILE, &low);
}

// The process has a descriptor for one of two ranks only.
static Done serve_without_descriptors() {
    const auto id = create_unique_id(options());
    if (!id) return id.error();
    Processes ranks;
    for (uint32_t rank = 0; rank < 2; rank++)
        ranks.start([&]() -> Done {
            std::this_thread::sleep_for(200ms);
            return join_and_exchange(*id, 2, rank);
        });
    leave_descriptors(1);
    const Report reports[] = {ranks.report(0), ranks.report(1)};
    for (const Report &report : reports)
        if (std::strstr(report.text, "cannot accept rank") &&
            std::strstr(report.text, "Too many open files"))
            return {};
    return Error::make(Code::internal_error, "%.100s; %.100s", reports[0].text, reports[1].text);
}

// Whether a lack of descriptors cannot be tested here: the address sanitizer's check of types needs
// a pipe, and Valgrind keeps its own limit.
static bool is_limit_kept() {
    const char *const preloaded = std::getenv("LD_PRELOAD");
    return UNDER_ADDRESS_SANITIZER || (preloaded && std::strstr(preloaded, "vgpreload"));
}

static void a_process_without_descriptors_cannot_serve() {
    if (is_limit_kept()) return;
    const Timer timer;
    Processes alone; // nothing else opens or closes descriptors in it
    alone.start(serve_without_descriptors);
    CHECK_EQ(std::string(alone.report(0).text), "");
    CHECK(timer.seconds() < 12);
}

// Connects to the rendezvous again and again, each time until the server hangs up.
static Done keep_knocking(const UniqueId &id) {
    QCCL_TRY(const IdFields fields, unpack(id));
    const SocketAddress address = to_socket_address(fields.endpoints.front());
    for (const Timer timer; timer.seconds() < 10;) {
        const FileDescriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
        if (connect(socket.number(), address.get(), address.bytes) != 0) return {};
        char byte = 0;
        (void)recv(socket.number(), &byte, 1, 0);
    }
    return {};
}

// Beside rank 0 the process has a descriptor for one peer, which strangers take in turns.
static Done serve_while_strangers_take_turns() {
    const auto id = create_unique_id(options());
    if (!id) return id.error();
    Processes others;
    others.start([&] {
        std::this_thread::sleep_for(200ms); // its connection takes one of those that are left
        return join_and_exchange(*id, 2, 0);
    });
    for (int i = 0; i < 2; i++)
        others.start([&] {
            std::this_thread::sleep_for(500ms);
            return keep_knocking(*id);
        });
    leave_descriptors(2);
    const Timer timer;
    const Report report = others.report(0);
    if (std::strstr(report.text, "cannot accept rank 1") && timer.seconds() < 9) return {};
    return Error::make(Code::internal_error, "%.100s after %.0f s", report.text, timer.seconds());
}

static void ranks_do_not_wait_while_strangers_take_turns() {
    if (is_limit_kept()) return;
    Processes alone; // nothing else opens or closes descriptors in it
    alone.start(serve_while_strangers_take_turns);
    CHECK_EQ(std::string(alone.report(0).text), "");
}

static void a_process_may_exit_while_it_serves() {
    const Timer timer;
    const pid_t child = fork();
    if (child == 0) {
        const auto id = create_unique_id(options());
        const bool serves = comes_true([] { return server_threads() == 1; });
        std::this_thread::sleep_for(20ms); // until the server waits
        exit(id && serves ? 0 : 1);
    }
    int status = -1;
    waitpid(child, &status, 0);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    CHECK(timer.seconds() < 2);
}

int main() {
    // The tests whose children start threads come first, while this process has no threads: the
    // thread sanitizer follows no other children.
    const CMUnitTest tests[] = {
        QTEST(the_host_of_the_rendezvous_is_named),
        QTEST(the_server_takes_no_signals_and_ends_when_all_have_left),
        QTEST(a_process_without_descriptors_cannot_serve),
        QTEST(ranks_do_not_wait_while_strangers_take_turns),
        QTEST(a_process_may_exit_while_it_serves),
        QTEST(a_stopped_host_is_not_waited_for),
        QTEST(processes_meet_too),
        QTEST(a_killed_rank_is_named),
        QTEST(a_death_shows_without_an_exchange),
        QTEST(a_stopped_rank_costs_time_only),
        QTEST(a_rank_that_left_is_named),
        QTEST(a_forked_child_leaves_its_parents_connection_alone),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
