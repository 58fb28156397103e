// Kills one of several processes at a random moment of their life together, again and again. Checks
// that every survivor either completes with the right result or returns in time an error that names
// the dead rank, and that what the ranks share has no name in /dev/shm, which would outlive a rank
// that is killed. Uses the public API alone.
//
//     survivors --runs 1000 [--ranks 4] [--seed 1] [--verbose]
#include "tests/transport/killable_ranks.hpp"
#include "tests/kit/workload.hpp"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <unistd.h>

namespace {

using namespace killable;
using namespace workload;

constexpr int max_ranks = 64;
constexpr double peer_timeout_s = 10;
// Bounds the wait for a rank that died before it joined and so never comes.
constexpr double timeout_s = 5;
// The longest time from the kill to the return of a survivor.
constexpr double patience_s = peer_timeout_s;

constexpr uint64_t calls_per_run = 400;

constexpr int named_memory = 5; // exit status of a rank

// Other jobs of this machine may have files in /dev/shm at any time, so a rank looks at its own
// memory.
bool maps_named_memory() {
    std::ifstream maps("/proc/self/maps");
    for (std::string line; std::getline(maps, line);)
        if (line.find(" /dev/shm/") != std::string::npos) return true;
    return false;
}

[[noreturn]] void run_rank(Report &report, int id_read, int id_write, int rank, int ranks,
                           bool registers) {
    qcclUniqueId id;
    qcclComm_t comm = nullptr;
    qcclResult_t result = qcclSuccess;
    // Ranks that wait for the id must see the end of the pipe if rank 0 dies.
    if (rank != 0) close(id_write);
    if (rank == 0) {
        result = qcclGetUniqueId(&id);
        for (int peer = 1; result == qcclSuccess && peer < ranks; peer++)
            if (write(id_write, &id, sizeof id) != sizeof id) result = qcclSystemError;
    } else if (read(id_read, &id, sizeof id) != sizeof id) {
        _exit(3); // rank 0 died before it had an id: there is no job
    }
    close(id_read);
    if (rank == 0) close(id_write);
    qcclConfig_t config = QCCL_CONFIG_INIT;
    config.peer_timeout = peer_timeout_s;
    config.timeout = timeout_s;
    config.log.function = [](int32_t, const char *, void *) {}; // the deaths are expected
    if (result == qcclSuccess) result = qcclCommInitRankConfig(&comm, ranks, &id, rank, &config);
    if (result == qcclSuccess) result = work(report, comm, rank, ranks, calls_per_run, registers);
    note(report, comm, result);
    report.ended_at = now();
    report.stage = ended;
    const bool has_names = maps_named_memory();
    qcclCommDestroy(comm);
    _exit(has_names ? named_memory : 0);
}

class Run {
public:
    Run(int ranks, bool registers, std::mt19937_64 &random)
        : ranks_(ranks), registers_(registers), random_(random) {}

    // Runs the ranks and kills one. Returns an empty text, or what was wrong.
    std::string execute() {
        if (!reports_.are_there() || !start()) return "could not start";
        victim_ = static_cast<int>(random_() % static_cast<uint64_t>(ranks_));
        await_moment();
        processes_.kill(victim_);
        killed_at_ = now();
        return judge();
    }
    std::string summary() const {
        std::string text = say("victim %d:", victim_);
        for (int r = 0; r < ranks_; r++)
            text += say(" %llu/%d", static_cast<unsigned long long>(reports_[r].calls),
                        reports_[r].result);
        return text;
    }
    bool died_in_calls() const {
        return reports_[victim_].calls > 0 && reports_[victim_].stage != ended;
    }

private:
    bool start() {
        int ends[2];
        if (pipe(ends) != 0) return false;
        for (int rank = 0; rank < ranks_; rank++) {
            const auto run = [&] {
                run_rank(reports_[rank], ends[0], ends[1], rank, ranks_, registers_);
            };
            if (!processes_.start(run)) return false;
        }
        close(ends[0]);
        close(ends[1]);
        return true;
    }

    // One victim in five dies while communicators are created, the others shortly after some call.
    void await_moment() const {
        using std::chrono::microseconds;
        if (random_() % 5 == 0) return std::this_thread::sleep_for(microseconds(random_() % 20000));
        const uint64_t call = 1 + random_() % (calls_per_run / 4);
        const Report &victim = reports_[victim_];
        const double until = now() + patience_s;
        while (victim.calls < call && victim.stage != ended && now() < until)
            std::this_thread::sleep_for(microseconds(50));
        std::this_thread::sleep_for(microseconds(random_() % 3000));
    }

    bool reap(int rank, double until) {
        const auto status = processes_.reap(rank, [&] { return now() <= until; });
        crashed_ = status && WIFSIGNALED(*status) && rank != victim_;
        has_names_ |= status && WIFEXITED(*status) && WEXITSTATUS(*status) == named_memory;
        return status.has_value();
    }

    std::string judge() {
        for (int rank = 0; rank < ranks_; rank++) {
            if (!reap(rank, killed_at_ + patience_s)) return say("rank %d hangs", rank);
            if (crashed_) return say("rank %d crashed", rank);
            if (has_names_) return say("rank %d maps a file of /dev/shm", rank);
            if (rank == victim_) continue;
            const std::string wrong = judge(reports_[rank]);
            if (!wrong.empty()) return say("rank %d: %s", rank, wrong.c_str());
        }
        return "";
    }

    std::string judge(const Report &report) const {
        if (report.wrong != 0) return "a wrong result";
        if (report.stage != ended) return ""; // no job: rank 0 died before there was an id
        if (report.result == qcclSuccess) return "";
        const std::string sentence = report.sentence;
        if (report.calls == 0) {
            // Ranks that give up exit at once here, including rank 0, which serves the rendezvous.
            // A rank that comes later or waits a moment longer then gets an error about the
            // rendezvous and not about the first death.
            if (sentence.find("the rendezvous") != std::string::npos) return "";
        } else if (report.peer != victim_) {
            return say("ErrorInfo names rank %d: %s", report.peer, report.sentence);
        }
        if (sentence.find(say("rank %d", victim_)) != std::string::npos) return "";
        return say("error %d does not name the dead rank: %s", report.result, report.sentence);
    }

    const int ranks_;
    const bool registers_; // the ranks register their buffers
    std::mt19937_64 &random_;
    const Reports<Report> reports_{max_ranks};
    Processes processes_;
    int victim_ = 0;
    double killed_at_ = 0;
    bool crashed_ = false;
    bool has_names_ = false;
};

bool has_flag(int argc, char **argv, const char *name) {
    return std::any_of(argv + 1, argv + argc,
                       [&](const char *text) { return std::strcmp(text, name) == 0; });
}

} // namespace

int main(int argc, char **argv) {
    const long runs = number_after(argc, argv, "--runs", 50);
    const int ranks =
        static_cast<int>(std::clamp(number_after(argc, argv, "--ranks", 4), 2L, long{max_ranks}));
    const long seed = number_after(argc, argv, "--seed", 1);
    std::mt19937_64 random(static_cast<uint64_t>(seed));
    long failed = 0, in_calls = 0;
    for (long i = 0; i < runs; i++) {
        Run run(ranks, i % 2 == 1, random);
        const std::string wrong = run.execute();
        in_calls += run.died_in_calls();
        if (!wrong.empty()) {
            failed++;
            std::printf("run %ld (seed %ld): %s [%s]\n", i, seed, wrong.c_str(),
                        run.summary().c_str());
        } else if (has_flag(argc, argv, "--verbose")) {
            std::printf("run %ld: %s\n", i, run.summary().c_str());
        }
        std::fflush(stdout);
    }
    std::printf("%ld runs, %ld ranks killed between first and last call, %ld failed\n", runs,
                in_calls, failed);
    // The test shows nothing if all victims died before or after the calls.
    const bool shows_something = runs < 20 || in_calls * 2 > runs; // three in five are expected
    if (!shows_something)
        std::printf("too few ranks died inside the calls: the moments are chosen badly\n");
    return failed == 0 && shows_something ? 0 : 1;
}
