// Kills ranks at random moments, in calls and while the others shrink the communicator. Each shrink
// must succeed, all survivors must count the same ranks, and sums must be right. It uses only the
// public API.
//
//     shrink_kill --runs 50 [--ranks 5] [--hosts 1] [--seed 1] [--verbose]
//
// All hosts are this one; with several hosts, ranks of different hosts communicate over the network
// only. `shrink_kill --join` is one rank of a launcher's job, and prints the surviving ranks.
#include "tests/transport/killable_ranks.hpp"

#include <qccl/qccl.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <unistd.h>

namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::microseconds;
using namespace killable;

constexpr int max_ranks = 16;
constexpr double patience_s = 60; // limit for a whole run
constexpr double timeout_s = 30;
constexpr int last_calls = 20; // that the survivors make in the end

// When a rank dies: `after_us` after the start of a call of its first communicator, or after the
// start of its n-th shrink.
struct Death {
    bool is_due = false;
    int shrinking = 0; // 0: in a call
    int call = 0;
    int after_us = 0;
};

// A rank's report, in memory shared with the parent.
struct Report {
    volatile int32_t shrunk; // how many times
    volatile uint32_t left;  // a bit for each surviving rank, from the last sum
    char wrong[300];
};

class Rank {
public:
    Rank(int rank, int ranks, int hosts, const Death &death, Report &report)
        : rank_(rank), ranks_(ranks), host_(rank * hosts / ranks), death_(death), report_(report) {}

    [[noreturn]] void run(const qcclUniqueId &id) {
        setenv("QCCL_HOSTID", say("h%d", host_).c_str(), 1);
        setenv("QCCL_UCX_DEVICES", "lo", 1);
        const qcclConfig_t config = quiet_config();
        const qcclResult_t result = qcclCommInitRankConfig(&comm_, ranks_, &id, rank_, &config);
        if (result != qcclSuccess) complain("creation", result);
        live();
        _exit(0);
    }

    void join() {
        qcclConfig_t config = quiet_config();
        config.peer_timeout = 3;
        const qcclResult_t result = qcclCommInitEnv(&comm_, &config);
        if (result != qcclSuccess) complain("creation", result);
        qcclCommUserRank(comm_, &rank_);
        split();
        std::printf("works\n");
        std::fflush(stdout);
        live();
        std::printf("shrunk %d times, left %x\n", report_.shrunk, report_.left);
    }

private:
    static qcclConfig_t quiet_config() {
        qcclConfig_t config = QCCL_CONFIG_INIT;
        config.timeout = timeout_s;
        config.log.function = [](int32_t, const char *, void *) {}; // the deaths are expected
        return config;
    }

    void complain(const char *what, qcclResult_t result) {
        std::snprintf(report_.wrong, sizeof report_.wrong, "%s: %d: %s", what, result,
                      qcclGetLastError(result == qcclInternalError ? nullptr : comm_));
        std::fprintf(stderr, "%s\n", report_.wrong);
        _exit(1);
    }

    // Works until a rank dies, shrinks, and repeats this as long as ranks die.
    void live() {
        while (work(100000) != qcclSuccess && shrink()) {}
        qcclCommDestroy(comm_);
    }

    // Splits into odd and even ranks, the highest rank first.
    void split() {
        qcclComm_t half = nullptr;
        qcclResult_t result = qcclCommSplit(comm_, rank_ % 2, -rank_, &half, nullptr);
        if (result != qcclSuccess) complain("splitting", result);
        int sum = rank_, ranks = 0, place = 0, expected = 0;
        result = qcclAllReduce(&sum, &sum, 1, qcclInt32, qcclSum, half, nullptr);
        if (result != qcclSuccess) complain("a sum of a half", result);
        qcclCommCount(comm_, &ranks);
        qcclCommUserRank(half, &place);
        for (int rank = rank_ % 2; rank < ranks; rank += 2) expected += rank;
        if (sum != expected || place != (ranks - 1 - rank_) / 2)
            complain("a wrong half", qcclInternalError);
        if (qcclCommDestroy(half) != qcclSuccess) complain("destruction", qcclInternalError);
    }

    // Makes calls and returns the first error. A communicator made by a shrink gets only last_calls
    // calls.
    qcclResult_t work(int calls) {
        std::vector<int32_t> values(5000);
        for (int call = 1; call <= calls; call++) {
            const bool is_last = report_.shrunk > 0;
            if (is_last && call > last_calls) return qcclSuccess;
            if (death_.is_due && death_.shrinking == 0 && call == death_.call) die_soon();
            const size_t count = call % 3 == 0 ? values.size() : 2;
            for (int32_t &value : values) value = 1 << rank_;
            const qcclResult_t result = qcclAllReduce(values.data(), values.data(), count,
                                                      qcclInt32, qcclSum, comm_, nullptr);
            if (result != qcclSuccess) return result;
            check(values, count);
        }
        return qcclSuccess;
    }

    void check(const std::vector<int32_t> &values, size_t count) {
        int members = 0;
        qcclCommCount(comm_, &members);
        const auto sum = static_cast<uint32_t>(values[0]);
        report_.left = sum;
        bool is_right = __builtin_popcount(sum) == members && (sum >> rank_ & 1) == 1;
        for (size_t i = 0; i < count; i++) is_right = is_right && values[i] == values[0];
        if (!is_right) complain("a wrong sum", qcclInternalError);
    }

    bool shrink() {
        qcclComm_t made = nullptr;
        if (death_.is_due && death_.shrinking == report_.shrunk + 1) die_soon();
        const int flags = rank_ % 2 == 0 ? QCCL_SHRINK_DEFAULT : QCCL_SHRINK_ABORT;
        const qcclResult_t result = qcclCommShrink(comm_, nullptr, 0, &made, nullptr, flags);
        if (result != qcclSuccess) complain("shrinking", result);
        const qcclComm_t parent = comm_;
        comm_ = made;
        if (qcclCommDestroy(parent) != qcclSuccess) complain("destruction", qcclInternalError);
        report_.shrunk = report_.shrunk + 1;
        return true;
    }

    void die_soon() const {
        std::thread([this] {
            std::this_thread::sleep_for(microseconds(death_.after_us));
            raise(SIGKILL);
        }).detach();
    }

    int rank_;
    const int ranks_, host_;
    const Death death_;
    Report &report_;
    qcclComm_t comm_ = nullptr;
};

class Run {
public:
    Run(int ranks, int hosts, std::mt19937_64 &random)
        : ranks_(ranks), hosts_(hosts), deaths_(static_cast<size_t>(ranks)) {
        const auto draw = [&](int below) {
            return static_cast<int>(random() % static_cast<uint64_t>(below));
        };
        // A rank dies in a call. During the shrink, most often the leader dies.
        const int first = draw(ranks);
        deaths_[static_cast<size_t>(first)] = {true, 0, 1 + draw(60), draw(2000)};
        const int leader = first == 0 ? 1 : 0;
        const int second = draw(3) == 0 ? (first + 1 + draw(ranks - 1)) % ranks : leader;
        if (draw(4) != 0) deaths_[static_cast<size_t>(second)] = {true, 1, 0, draw(6000)};
        if (ranks < 5 || draw(2) != 0) return;
        const int third = (std::max(first, second) + 1) % ranks;
        if (third != first && third != second)
            deaths_[static_cast<size_t>(third)] = {true, 1 + draw(2), 0, draw(6000)};
    }

    // Returns an empty text, or what was wrong.
    std::string execute() {
        qcclUniqueId id;
        if (!reports_.are_there() || qcclGetUniqueId(&id) != qcclSuccess) return "could not start";
        for (int rank = 0; rank < ranks_; rank++) {
            const Death &death = deaths_[static_cast<size_t>(rank)];
            const bool has_started = processes_.start(
                [&] { Rank(rank, ranks_, hosts_, death, reports_[rank]).run(id); });
            if (!has_started) return "could not start";
        }
        return judge();
    }
    std::string summary() const {
        std::string text;
        for (int rank = 0; rank < ranks_; rank++) {
            const Death &death = deaths_[static_cast<size_t>(rank)];
            text += say(" %d/%x", reports_[rank].shrunk, reports_[rank].left);
            if (death.is_due && death.shrinking == 0)
                text += say("(call %d +%d)", death.call, death.after_us);
            else if (death.is_due)
                text += say("(shrinking %d +%d)", death.shrinking, death.after_us);
        }
        return text;
    }
    bool killed_while_shrinking() const {
        for (int rank = 0; rank < ranks_; rank++)
            if (was_killed_[rank] && deaths_[static_cast<size_t>(rank)].shrinking > 0) return true;
        return false;
    }

private:
    std::string judge() {
        const auto until = Clock::now() + std::chrono::duration<double>(patience_s);
        for (int rank = 0; rank < ranks_; rank++) {
            const auto status = processes_.reap(rank, [&] { return Clock::now() <= until; });
            if (!status) return say("rank %d hangs", rank);
            was_killed_[rank] = WIFSIGNALED(*status) && WTERMSIG(*status) == SIGKILL;
            if (WIFSIGNALED(*status) && !was_killed_[rank]) return say("rank %d crashed", rank);
            if (reports_[rank].wrong[0] != '\0')
                return say("rank %d: %s", rank, reports_[rank].wrong);
        }
        uint32_t living = 0;
        for (int rank = 0; rank < ranks_; rank++)
            if (!was_killed_[rank]) living |= 1U << rank;
        // A rank that dies after its last call, or late in it, is still counted.
        for (int rank = 0; rank < ranks_; rank++)
            if (!was_killed_[rank] && (reports_[rank].left & living) != living)
                return say("rank %d has lost a living rank", rank);
        return "";
    }

    const int ranks_, hosts_;
    std::vector<Death> deaths_;
    const Reports<Report> reports_{max_ranks};
    Processes processes_;
    bool was_killed_[max_ranks] = {};
};

} // namespace

int main(int argc, char **argv) {
    if (argc == 2 && std::strcmp(argv[1], "--join") == 0) {
        Report report{};
        Rank(0, 1, 1, {}, report).join();
        return 0;
    }
    const long runs = number_after(argc, argv, "--runs", 50);
    const int ranks = static_cast<int>(number_after(argc, argv, "--ranks", 5));
    const int hosts = static_cast<int>(number_after(argc, argv, "--hosts", 1));
    const long seed = number_after(argc, argv, "--seed", 1);
    const bool is_verbose = argc > 1 && std::strcmp(argv[argc - 1], "--verbose") == 0;
    if (ranks < 3 || ranks > max_ranks || hosts < 1 || hosts > ranks) {
        std::fprintf(stderr, "shrink_kill: --ranks is 3 to %d, --hosts 1 to as many\n", max_ranks);
        return 2;
    }
    long failed = 0, in_shrinking = 0;
    for (long i = 0; i < runs; i++) {
        std::mt19937_64 random(static_cast<uint64_t>(seed) * 1000003 + static_cast<uint64_t>(i));
        Run run(ranks, hosts, random);
        const auto begin = Clock::now();
        const std::string wrong = run.execute();
        const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
        in_shrinking += run.killed_while_shrinking();
        failed += !wrong.empty();
        if (!wrong.empty() || is_verbose)
            std::printf("run %ld (seed %ld, %.2f s): %s [%s]\n", i, seed, seconds, wrong.c_str(),
                        run.summary().c_str());
        std::fflush(stdout);
    }
    std::printf("%ld runs, in %ld of them ranks killed while they shrank, %ld failed\n", runs,
                in_shrinking, failed);
    return failed == 0 ? 0 : 1;
}
