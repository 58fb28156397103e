#include "perf/launch.hpp"

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <thread>

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

namespace qccl::perf {

// Survivors learn of a death from the library and word it themselves; this is how long they have.
static constexpr auto grace = std::chrono::seconds(5);

static int run_rank(Board &board, uint32_t rank, const Body &body) {
    const std::unique_ptr<Crew> crew = board.join(rank);
    const int status = body(*crew);
    if (status != 0) crew->give_up();
    return status;
}

[[noreturn]] static void be_rank(Board &board, uint32_t rank, const Body &body, pid_t parent) {
    // A rank must not outlive the one who watches over it, however that one ends.
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(EXIT_FAILURE);
    const int status = run_rank(board, rank, body);
    std::fflush(stdout);
    _exit(status);
}

static bool has_failed(uint32_t rank, int status) {
    if (WIFSIGNALED(status))
        std::fprintf(stderr, "rank %u was ended by signal %d (%s)\n", rank, WTERMSIG(status),
                     strsignal(WTERMSIG(status)));
    return !WIFEXITED(status) || WEXITSTATUS(status) != 0;
}

static void end_all(const std::vector<pid_t> &ranks) {
    for (const pid_t pid : ranks)
        if (pid != 0) kill(pid, SIGKILL);
}

// `ranks` holds the processes, 0 for those that have ended.
static int watch(Board &board, std::vector<pid_t> &ranks, bool failed) {
    using Clock = std::chrono::steady_clock;
    Clock::time_point deadline = Clock::now() + grace;
    for (size_t left = ranks.size(); left > 0;) {
        int status = 0;
        const pid_t pid = waitpid(-1, &status, failed ? WNOHANG : 0);
        if (pid < 0 && errno == ECHILD) break;
        for (uint32_t rank = 0; pid > 0 && rank < ranks.size(); rank++) {
            if (ranks[rank] != pid) continue;
            ranks[rank] = 0;
            left--;
            if (!has_failed(rank, status) || failed) continue;
            failed = true;
            deadline = Clock::now() + grace;
            board.give_up();
        }
        if (!failed || pid > 0) continue;
        if (Clock::now() > deadline) end_all(ranks);
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}

int launch_processes(uint32_t ranks, const Body &body) {
    const auto board = Board::create(ranks);
    if (!board) {
        std::fprintf(stderr, "%s\n", board.error().text);
        return EXIT_FAILURE;
    }
    std::fflush(nullptr); // what is buffered now would be printed once by every rank
    const pid_t parent = getpid();
    std::vector<pid_t> started;
    for (uint32_t rank = 0; rank < ranks; rank++) {
        const pid_t pid = fork();
        if (pid == 0) be_rank(**board, rank, body, parent);
        if (pid < 0) {
            std::fprintf(stderr, "cannot start rank %u: %s\n", rank, std::strerror(errno));
            end_all(started);
            return watch(**board, started, true);
        }
        started.push_back(pid);
    }
    return watch(**board, started, false);
}

int launch_threads(uint32_t ranks, const Body &body) {
    const auto board = Board::create(ranks);
    if (!board) {
        std::fprintf(stderr, "%s\n", board.error().text);
        return EXIT_FAILURE;
    }
    std::vector<int> status(ranks, EXIT_FAILURE);
    {
        std::vector<std::jthread> threads;
        for (uint32_t rank = 0; rank < ranks; rank++)
            threads.emplace_back([&, rank] { status[rank] = run_rank(**board, rank, body); });
    }
    for (const int one : status)
        if (one != 0) return EXIT_FAILURE;
    return EXIT_SUCCESS;
}

} // namespace qccl::perf
