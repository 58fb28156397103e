// Implements launch.hpp: forks or starts the ranks, waits for their end and for signals, and ends
// the remaining ranks after a failure. Reads MemAvailable from /proc/meminfo, finds cores and
// packages by sched_getaffinity() and /sys, and waits for blocked signals with sigwaitinfo() and
// sigtimedwait().
#include "perf/run/launch.hpp"

#include "perf/report/tool_files.hpp"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>
#include <system_error>
#include <thread>
#include <tuple>

#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

namespace qccl::perf {

// ---- Memory of this machine

std::optional<uint64_t> available_memory_bytes() {
    std::ifstream info("/proc/meminfo");
    for (std::string name; info >> name;) {
        uint64_t kibibytes = 0;
        if (name == "MemAvailable:" && info >> kibibytes) return kibibytes * 1024;
        info.ignore(1000, '\n');
    }
    return std::nullopt;
}

// ---- Processors of this machine

namespace {

// Returns a number of a processor's topology, or 0 if the system does not tell.
uint32_t number_in(uint32_t processor, const char *file) {
    std::ifstream stream("/sys/devices/system/cpu/cpu" + std::to_string(processor) + "/topology/" +
                         file);
    uint32_t number = 0;
    stream >> number;
    return number;
}

} // namespace

std::vector<uint32_t> processors_in_order() {
    // The call fails on a machine with more processors than a cpu_set_t can hold.
    cpu_set_t allowed;
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return {};
    std::vector<std::tuple<uint32_t, uint32_t, uint32_t>> places;
    for (uint32_t processor = 0; processor < CPU_SETSIZE; processor++)
        if (CPU_ISSET(processor, &allowed))
            places.emplace_back(number_in(processor, "physical_package_id"),
                                number_in(processor, "core_id"), processor);
    std::ranges::sort(places);
    std::vector<uint32_t> processors;
    for (const auto &[package, core, processor] : places) processors.push_back(processor);
    return processors;
}

std::vector<uint32_t> share_of(const std::vector<uint32_t> &processors, uint32_t rank,
                               uint32_t ranks) {
    const uint64_t count = processors.size();
    if (count == 0) return {};
    const auto from = rank * count / ranks;
    const auto to = std::max(from + 1, (rank + uint64_t{1}) * count / ranks);
    return {processors.begin() + static_cast<ptrdiff_t>(from),
            processors.begin() + static_cast<ptrdiff_t>(to)};
}

void stay_on(const std::vector<uint32_t> &processors) {
    if (processors.empty()) return;
    cpu_set_t set;
    CPU_ZERO(&set);
    for (const uint32_t processor : processors) CPU_SET(processor, &set);
    (void)sched_setaffinity(0, sizeof set, &set);
}

// ---- Signals

static bool is_ignored(int signal) {
    struct sigaction action {};
    return sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

Interrupts::Interrupts() {
    sigemptyset(&taken_);
    sigaddset(&taken_, rank_ended);
    for (const int signal : {SIGINT, SIGTERM, SIGHUP})
        if (!is_ignored(signal)) sigaddset(&taken_, signal);
    pthread_sigmask(SIG_BLOCK, &taken_, &before_);
}

Interrupts::~Interrupts() {
    // Consume pending signals, so that they are not delivered when the mask is restored.
    while (wait(std::chrono::milliseconds(0)) != 0) {}
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

int Interrupts::wait(std::chrono::milliseconds most) const {
    const timespec timeout{.tv_sec = most.count() / 1000,
                           .tv_nsec = most.count() % 1000 * 1'000'000};
    const int signal =
        most == for_ever ? sigwaitinfo(&taken_, nullptr) : sigtimedwait(&taken_, nullptr, &timeout);
    return signal > 0 ? signal : 0;
}

void Interrupts::hand_to_rank() const {
    sigset_t mask = before_;
    for (const int signal : {SIGINT, SIGHUP})
        if (sigismember(&taken_, signal) == 1) sigaddset(&mask, signal);
    pthread_sigmask(SIG_SETMASK, &mask, nullptr);
}

// ---- Launching

// After a failure the other ranks have this long to learn of it from the library and to report it
// themselves.
static constexpr auto grace = std::chrono::seconds(5);

// The kernel may leave two ranks on one core though others are free, and their calls then take ten
// times as long.
static Body on_own_share(const Body &body) {
    return [&body, processors = processors_in_order()](RankGroup &rank_group) {
        stay_on(share_of(processors, rank_group.rank(), rank_group.size()));
        return body(rank_group);
    };
}

static int run_rank(RunMemory &run_memory, uint32_t rank, const Body &body) {
    const std::unique_ptr<RankGroup> rank_group = run_memory.join(rank);
    const int status = body(*rank_group);
    if (status != 0) rank_group->give_up();
    return status;
}

[[noreturn]] static void be_rank(RunMemory &run_memory, uint32_t rank, const Body &body,
                                 pid_t parent, const Interrupts &interrupts) {
    // A rank must not outlive the launcher that watches it, however the launcher ends.
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    interrupts.hand_to_rank();
    if (getppid() != parent) _exit(EXIT_FAILURE);
    const int status = run_rank(run_memory, rank, body);
    _exit(end_output("qccl-perf", status));
}

// Follows a run until it succeeds, fails or is interrupted.
class Watch {
public:
    explicit Watch(RunMemory &run_memory) : run_memory_(run_memory) {}

    bool has_failed() const { return has_failed_; }
    bool is_interrupted() const { return signal_ != 0; }
    bool is_overdue() const { return has_failed_ && Clock::now() > deadline_; }
    bool has_ended_ranks() const { return has_ended_ranks_; }

    void fail() {
        if (has_failed_) return;
        has_failed_ = true;
        deadline_ = Clock::now() + grace;
        run_memory_.give_up();
    }

    // Waits for a signal. A second interrupt ends the run without further waiting.
    void wait(const Interrupts &interrupts) {
        static constexpr auto look = std::chrono::milliseconds(10);
        const int signal = interrupts.wait(has_failed_ ? look : Interrupts::for_ever);
        if (signal == 0 || signal == Interrupts::rank_ended) return;
        if (signal_ == 0)
            std::fprintf(stderr, "interrupted by signal %d (%s)\n", signal, strsignal(signal));
        else
            deadline_ = Clock::now();
        signal_ = signal;
        fail();
    }

    // Kills the processes in `ranks`, where 0 is one that has ended. Their deaths are then not
    // reported.
    void end(const std::vector<pid_t> &ranks) {
        has_ended_ranks_ = true;
        for (const pid_t pid : ranks)
            if (pid != 0) kill(pid, SIGKILL);
    }

    int status() const {
        if (signal_ != 0) return status_of_signal(signal_);
        return has_failed_ ? EXIT_FAILURE : EXIT_SUCCESS;
    }

private:
    using Clock = std::chrono::steady_clock;
    RunMemory &run_memory_;
    bool has_failed_ = false;
    bool has_ended_ranks_ = false;
    int signal_ = 0;
    Clock::time_point deadline_;
};

// Waits until all ranks have ended. `ranks` holds the processes, 0 for one that has ended.
static int watch_processes(Watch &watch, const Interrupts &interrupts, std::vector<pid_t> &ranks) {
    for (size_t left = ranks.size(); left > 0;) {
        int status = 0;
        const pid_t pid = waitpid(-1, &status, WNOHANG);
        if (pid < 0 && errno == ECHILD) break;
        for (uint32_t rank = 0; pid > 0 && rank < ranks.size(); rank++) {
            if (ranks[rank] != pid) continue;
            ranks[rank] = 0;
            left--;
            if (WIFSIGNALED(status) && !watch.has_ended_ranks())
                std::fprintf(stderr, "rank %u was ended by signal %d (%s)\n", rank,
                             WTERMSIG(status), strsignal(WTERMSIG(status)));
            if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) watch.fail();
        }
        if (pid > 0) continue;
        watch.wait(interrupts);
        if (watch.is_overdue()) watch.end(ranks);
    }
    return watch.status();
}

int launch_processes(uint32_t ranks, const Body &body) {
    const auto run_memory = RunMemory::create(ranks);
    if (!run_memory) {
        std::fprintf(stderr, "%s\n", run_memory.error().text);
        return EXIT_FAILURE;
    }
    std::fflush(nullptr); // otherwise every rank would print the buffered text once more
    const Body placed = on_own_share(body);
    const Interrupts interrupts;
    Watch watch(**run_memory);
    const pid_t parent = getpid();
    std::vector<pid_t> started;
    for (uint32_t rank = 0; rank < ranks && !watch.has_failed(); rank++) {
        const pid_t pid = fork();
        if (pid == 0) be_rank(**run_memory, rank, placed, parent, interrupts);
        if (pid > 0) {
            started.push_back(pid);
            continue;
        }
        std::fprintf(stderr, "the process of rank %u could not be started: %s\n", rank,
                     std::strerror(errno));
        watch.end(started);
        watch.fail();
    }
    return watch_processes(watch, interrupts, started);
}

int launch_threads(uint32_t ranks, const Body &body) {
    const auto run_memory = RunMemory::create(ranks);
    if (!run_memory) {
        std::fprintf(stderr, "%s\n", run_memory.error().text);
        return EXIT_FAILURE;
    }
    const Body placed = on_own_share(body);
    const Interrupts interrupts;
    Watch watch(**run_memory);
    const pthread_t launcher = pthread_self();
    std::atomic<uint32_t> left = ranks, failed = 0;
    std::vector<std::jthread> threads;
    const auto start = [&](uint32_t rank) {
        threads.emplace_back([&, rank] {
            if (run_rank(**run_memory, rank, placed) != 0) failed++;
            left--;
            pthread_kill(launcher, Interrupts::rank_ended);
        });
    };
    for (uint32_t rank = 0; rank < ranks && !watch.has_failed(); rank++) {
        try {
            start(rank);
        } catch (const std::system_error &error) {
            std::fprintf(stderr, "the thread of rank %u could not be started: %s\n", rank,
                         error.what());
            left -= ranks - rank;
            failed++;
            watch.fail();
        }
    }
    while (left > 0) {
        watch.wait(interrupts);
        if (failed > 0) watch.fail();
        // A thread ends only with its process. After a failure without an interrupt the ranks may
        // finish, because their waits are bounded.
        if (watch.is_overdue() && watch.is_interrupted()) std::_Exit(watch.status());
    }
    threads.clear();
    if (failed > 0) watch.fail();
    return watch.status();
}

} // namespace qccl::perf
