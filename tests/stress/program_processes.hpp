// Processes that play ranks of random calls, one task after another. The first process plays all
// ranks if they are threads. The parent makes no library calls, so that it can fork new processes
// at any time. The parent's thread alone uses the class.
#pragma once

#include "tests/transport/killable_ranks.hpp"
#include "stress_call.hpp"

#include <ctime>

#include <semaphore.h>
#include <sys/prctl.h>

namespace stress {

inline void end_with_parent() { prctl(PR_SET_PDEATHSIG, SIGKILL); }

// `Task` says what to play, `Board` is where ranks and parent meet; both lie in shared memory.
template <class Task, class Board> class RankProcesses {
public:
    // `play(task, rank, stage)` runs in the rank's process.
    template <class Play> explicit RankProcesses(Play play) {
        sem_init(&shared().ends, 1, 0);
        for (int rank = 0; rank < max_ranks; rank++) {
            sem_init(&shared().starts[rank], 1, 0);
            processes_.start([this, rank, play] { serve(rank, play); });
        }
    }

    Board &stage() const { return shared().stage; }

    // Lets the first `busy` processes play. Returns whether all have ended; if not, because a
    // process has died or `may_last()` returned false, the processes cannot be used again.
    template <class MayLast> bool play(const Task &task, int busy, MayLast may_last) {
        shared().task = task;
        for (int rank = 0; rank < busy; rank++) sem_post(&shared().starts[rank]);
        for (int ended = 0; ended < busy;) {
            if (has_ended_soon())
                ended++;
            else if (has_died() || !may_last())
                return false;
        }
        return true;
    }

private:
    struct Shared {
        sem_t starts[max_ranks], ends;
        Task task;
        Board stage;
    };
    Shared &shared() const { return memory_[0]; }

    template <class Play> [[noreturn]] void serve(int rank, Play play) {
        end_with_parent();
        for (;;) {
            while (sem_wait(&shared().starts[rank]) != 0) {}
            play(shared().task, rank, shared().stage);
            sem_post(&shared().ends);
        }
    }

    // Waits for a quarter of a second, so that the caller notices ranks that have died.
    bool has_ended_soon() const {
        timespec until{};
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += 250'000'000;
        if (until.tv_nsec >= 1'000'000'000) {
            until.tv_nsec -= 1'000'000'000;
            until.tv_sec++;
        }
        return sem_timedwait(&shared().ends, &until) == 0;
    }
    bool has_died() const {
        for (int rank = 0; rank < max_ranks; rank++)
            if (processes_.reap(rank, [] { return false; })) return true;
        return false;
    }

    const killable::Reports<Shared> memory_{1};
    killable::Processes processes_;
};

// What the processes of a test have counted together.
template <class Counts> struct CountedJobs {
    Counts sum;
    bool have_started = false, has_crashed = false;
};

// Runs `play(job, counts)` in as many processes.
template <class Counts, class Play> CountedJobs<Counts> run_jobs(long jobs, Play play) {
    CountedJobs<Counts> counted;
    const killable::Reports<Counts> counts_of_jobs(static_cast<int>(jobs));
    if (!counts_of_jobs.are_there()) return counted;
    killable::Processes processes;
    for (int job = 0; job < jobs; job++) {
        const bool has_started = processes.start([&] {
            end_with_parent();
            play(job, counts_of_jobs[job]);
            _exit(0);
        });
        if (!has_started) return counted;
    }
    counted.have_started = true;
    for (int job = 0; job < jobs; job++) {
        const auto status = processes.reap(job, [] { return true; });
        counted.has_crashed = counted.has_crashed || !status || *status != 0;
        counted.sum.add(counts_of_jobs[job]);
    }
    return counted;
}

} // namespace stress
