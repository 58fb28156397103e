// Tests perf/run/launch: ranks start, exchange data, and are all gone after one of them fails in
// any way.
#include "tests/kit/qtest.hpp"

#include "perf/run/launch.hpp"
#include "tests/kit/sanitizer.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <climits>
#include <cstdio>

#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace qccl;
using namespace qccl::perf;

// Number of processes and threads that may still be started. Beyond it fork and pthread_create
// fail, as for a user at its process limit.
static int startable = INT_MAX;

// Sanitizers interpose the same functions.
#define STARTS_AS_IT_IS (UNDER_ADDRESS_SANITIZER || UNDER_THREAD_SANITIZER)
#if !STARTS_AS_IT_IS
extern "C" pid_t fork() noexcept {
    static const auto real = reinterpret_cast<decltype(&fork)>(dlsym(RTLD_NEXT, "fork"));
    if (startable-- > 0) return real();
    errno = EAGAIN;
    return -1;
}

extern "C" int pthread_create(pthread_t *thread, const pthread_attr_t *attributes,
                              void *(*body)(void *), void *argument) noexcept {
    static const auto real =
        reinterpret_cast<decltype(&pthread_create)>(dlsym(RTLD_NEXT, "pthread_create"));
    return startable-- > 0 ? real(thread, attributes, body, argument) : EAGAIN;
}
#endif

// Every rank's numbers arrive at every rank, even if that takes several rounds.
static int talk(RankGroup &rank_group) {
    static constexpr size_t count = 10000;
    std::vector<uint64_t> mine(count), all(count * rank_group.size());
    for (int round = 0; round < 3; round++) {
        for (size_t i = 0; i < count; i++)
            mine[i] = rank_group.rank() * 1000003 + i + static_cast<size_t>(round);
        if (!rank_group.allgather(mine.data(), all.data(), count * sizeof(uint64_t))) return 1;
        for (uint32_t rank = 0; rank < rank_group.size(); rank++)
            for (size_t i = 0; i < count; i++)
                if (all[rank * count + i] != rank * 1000003 + i + static_cast<size_t>(round))
                    return 1;
        if (!rank_group.barrier()) return 1;
    }
    return 0;
}

// Keeps the error messages of failing ranks out of the test's output.
class Silence {
public:
    Silence() : before_(dup(STDERR_FILENO)) {
        std::fflush(stderr);
        const int nowhere = open("/dev/null", O_WRONLY);
        dup2(nowhere, STDERR_FILENO);
        close(nowhere);
    }
    ~Silence() {
        std::fflush(stderr);
        dup2(before_, STDERR_FILENO);
        close(before_);
    }

private:
    int before_;
};

static void processes_talk() {
    for (const uint32_t ranks : {1U, 2U, 5U}) CHECK_EQ(launch_processes(ranks, talk), 0);
}

static void threads_talk() {
    for (const uint32_t ranks : {1U, 2U, 5U}) CHECK_EQ(launch_threads(ranks, talk), 0);
}

static void processors_are_shared_evenly() {
    using Share = std::vector<uint32_t>;
    const Share eight = {0, 4, 1, 5, 2, 6, 3, 7};
    CHECK(share_of(eight, 0, 2) == Share({0, 4, 1, 5}));
    CHECK(share_of(eight, 1, 2) == Share({2, 6, 3, 7}));
    CHECK(share_of(eight, 0, 3) == Share({0, 4}));
    CHECK(share_of(eight, 1, 3) == Share({1, 5, 2}));
    CHECK(share_of(eight, 2, 3) == Share({6, 3, 7}));
    CHECK(share_of(eight, 0, 1) == eight);
    const Share two = {3, 9};
    for (uint32_t rank = 0; rank < 4; rank++)
        CHECK(share_of(two, rank, 4) == Share({two[rank / 2]}));
    CHECK(share_of({}, 1, 2).empty());
}

// Returns the processors that this thread may run on, in the order of their numbers.
static std::vector<uint32_t> own_processors() {
    auto processors = processors_in_order();
    std::ranges::sort(processors);
    return processors;
}

static void ranks_stay_on_their_share() {
    const std::vector<uint32_t> all = processors_in_order();
    CHECK(!all.empty());
    const uint32_t ranks = 3;
    const Body body = [&](RankGroup &rank_group) {
        auto expected = share_of(all, rank_group.rank(), ranks);
        std::ranges::sort(expected);
        return own_processors() == expected ? 0 : 1;
    };
    CHECK_EQ(launch_processes(ranks, body), 0);
    CHECK_EQ(launch_threads(ranks, body), 0);
    CHECK(processors_in_order() == all);
}

static bool has_children() { return waitpid(-1, nullptr, WNOHANG) >= 0; }

static void check_ends(const Body &body) {
    const Silence silence;
    const auto begin = std::chrono::steady_clock::now();
    CHECK(launch_processes(3, body) != 0);
    CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(20));
    CHECK(!has_children());
}

static void a_failure_of_one_rank_ends_the_others() {
    check_ends([](RankGroup &rank_group) {
        return rank_group.rank() == 1 ? 3 : rank_group.barrier().is_ok() ? 0 : 1;
    });
}

static void the_death_of_one_rank_ends_the_others() {
    check_ends([](RankGroup &rank_group) {
        if (rank_group.rank() == 2) raise(SIGKILL);
        return rank_group.barrier().is_ok() ? 0 : 1;
    });
}

// The launcher kills a rank that does not react, after a time limit.
static void a_deaf_rank_is_ended_too() {
    check_ends([](RankGroup &rank_group) {
        if (rank_group.rank() == 0) return 1;
        for (;;) pause();
    });
}

static void threads_give_up_together() {
    const int status = launch_threads(3, [](RankGroup &rank_group) {
        return rank_group.rank() == 1 ? 1 : rank_group.barrier().is_ok() ? 0 : 1;
    });
    CHECK(status != 0);
}

// The launcher is interrupted, and the ranks leave at their next barrier.
static void check_interrupt(int (*launch)(uint32_t, const Body &), const Body &wait_for_ever) {
    const Silence silence;
    for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
        ::signal(signal, SIG_DFL);       // nohup or a shell's & would have it ignored
        const pid_t launcher = getpid(); // of processes, or of threads
        const Body body = [&](RankGroup &rank_group) {
            if (rank_group.rank() == 0) kill(launcher, signal);
            return wait_for_ever(rank_group);
        };
        CHECK_EQ(launch(3, body), 128 + signal);
        CHECK(!has_children());
    }
}

static void interrupted_ranks_leave() {
    const Body wait_for_ever = [](RankGroup &rank_group) {
        while (rank_group.barrier()) {}
        return 1;
    };
    check_interrupt(launch_processes, wait_for_ever);
    check_interrupt(launch_threads, wait_for_ever);
}

// A terminal sends the signal to all processes; it must not end ranks that could still write.
static void ranks_leave_interrupts_to_their_launcher() {
    CHECK_EQ(launch_processes(2, [](RankGroup &) { return raise(SIGINT) + raise(SIGHUP); }), 0);
}

// A signal that the user has ignored stays ignored.
static void ignored_signals_stay_ignored() {
    struct sigaction before {};
    struct sigaction ignore {};
    ignore.sa_handler = SIG_IGN;
    sigaction(SIGHUP, &ignore, &before);
    const int status = launch_processes(2, [](RankGroup &rank_group) {
        if (rank_group.rank() == 0) kill(getppid(), SIGHUP);
        return rank_group.barrier() ? 0 : 1;
    });
    sigaction(SIGHUP, &before, nullptr);
    CHECK_EQ(status, 0);
}

static std::string errors_of(const std::function<void()> &act) {
    std::FILE *const capture = std::tmpfile();
    CHECK(capture != nullptr);
    std::fflush(stderr);
    const int before = dup(STDERR_FILENO);
    dup2(fileno(capture), STDERR_FILENO);
    act();
    std::fflush(stderr);
    dup2(before, STDERR_FILENO);
    close(before);
    std::rewind(capture);
    std::string text;
    for (int c; (c = std::fgetc(capture)) != EOF;) text += static_cast<char>(c);
    std::fclose(capture);
    return text;
}

static void equal_sentences_are_said_once() {
    const Body fail = [](RankGroup &rank_group) {
        (void)complain(rank_group, Error::make(Code::timeout, "all say this"));
        return complain(rank_group,
                        Error::make(Code::timeout, "rank %u says this", rank_group.rank()));
    };
    const std::string said = errors_of([&] { (void)launch_processes(4, fail); });
    const size_t first = said.find("all say this");
    CHECK(first != std::string::npos);
    CHECK(said.find("all say this", first + 1) == std::string::npos);
    for (uint32_t rank = 0; rank < 4; rank++)
        CHECK(said.find("rank " + std::to_string(rank) + " says this") != std::string::npos);
}

static void one_rank_words_what_stops_all() {
    const std::string said = errors_of([] {
        (void)launch_processes(4, [](RankGroup &rank_group) {
            const Done mine =
                rank_group.rank() < 2 ? Done{} : Error::make(Code::timeout, "no file");
            const Done all = settle(rank_group, mine);
            if (all || all.error().code != Code::timeout) std::fputs("another code\n", stderr);
            return all ? 0 : complain(rank_group, all.error());
        });
    });
    CHECK_EQ(said, "rank 2: no file\n");
    CHECK_EQ(
        launch_processes(4, [](RankGroup &rank_group) { return settle(rank_group, {}) ? 0 : 1; }),
        0);
}

// Nothing is printed about ranks that had been started and were ended because of it.
static void a_rank_that_cannot_be_started_is_named() {
    if (STARTS_AS_IT_IS) return;
    const auto said_by = [](int (*launch)(uint32_t, const Body &), int most) {
        int status = 0;
        const std::string said = errors_of([&] {
            startable = most;
            status = launch(4, [](RankGroup &rank_group) {
                const Done met = rank_group.barrier();
                return met ? 0 : complain(rank_group, met.error());
            });
            startable = INT_MAX;
        });
        CHECK(status != 0 && !has_children());
        return said;
    };
    for (const int most : {0, 1, 3}) {
        const std::string rest = " of rank " + std::to_string(most) +
                                 " could not be started: Resource temporarily unavailable\n";
        CHECK_EQ(said_by(launch_processes, most), "the process" + rest);
        CHECK_EQ(said_by(launch_threads, most), "the thread" + rest);
    }
}

// If the launcher is killed, its ranks die too.
static void ranks_do_not_outlive_their_launcher() {
    int pipe_ends[2];
    CHECK_EQ(pipe(pipe_ends), 0);
    const pid_t launcher = fork();
    if (launcher == 0) {
        close(pipe_ends[0]);
        (void)launch_processes(2, [&](RankGroup &) {
            (void)!write(pipe_ends[1], "x", 1);
            for (;;) pause();
            return 0;
        });
        _exit(0);
    }
    close(pipe_ends[1]);
    char started[2];
    for (size_t got = 0; got < 2;) {
        const ssize_t more = read(pipe_ends[0], started + got, 2 - got);
        CHECK(more > 0);
        got += static_cast<size_t>(more);
    }
    kill(launcher, SIGKILL);
    CHECK_EQ(waitpid(launcher, nullptr, 0), launcher);
    // The pipe reports its end when the last process that holds it has ended.
    CHECK_EQ(read(pipe_ends[0], started, 1), 0);
    close(pipe_ends[0]);
}

int main() {
    const CMUnitTest tests[] = {
        QTEST(processes_talk),
        QTEST(threads_talk),
        QTEST(processors_are_shared_evenly),
        QTEST(ranks_stay_on_their_share),
        QTEST(a_failure_of_one_rank_ends_the_others),
        QTEST(the_death_of_one_rank_ends_the_others),
        QTEST(a_deaf_rank_is_ended_too),
        QTEST(threads_give_up_together),
        QTEST(interrupted_ranks_leave),
        QTEST(ranks_leave_interrupts_to_their_launcher),
        QTEST(ignored_signals_stay_ignored),
        QTEST(equal_sentences_are_said_once),
        QTEST(one_rank_words_what_stops_all),
        QTEST(a_rank_that_cannot_be_started_is_named),
        QTEST(ranks_do_not_outlive_their_launcher),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
