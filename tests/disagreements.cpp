// Plays random sequences of calls in which one rank disagrees with the others, and demands that no
// two ranks take different results for good, that every rank is told in time, and that agreed calls
// are right (sequence_judge.hpp). Several sequences are played at a time, each by processes that
// are kept for the next ones. Uses the public API alone.
//
//     disagreements [--sequences 300] [--seed 1] [--first 0] [--jobs 4] [--peer-timeout 2]
//                   [--timeout 20] [--shown 20] [--one-host] [--table] [--only root]
//
// A machine with other work may keep a rank from its core for seconds. So a sequence that took too
// long and broke no other rule is printed and played once more; more than one in a thousand of them
// fail the run.
//
// Without --sequences their number is that of QTEST_SEQUENCES.
// A sequence is named by the seed and its number: `--seed S --first N --sequences 1` plays it
// again.
#include "mortals.hpp"
#include "sequence_judge.hpp"

#include <algorithm>
#include <ctime>
#include <memory>

#include <semaphore.h>
#include <sys/prctl.h>

namespace {

using namespace sequences;
using mortals::number_after;
using mortals::say;

constexpr double patience_s = 60; // with all of a sequence's ranks, beyond `timeout`

struct Arguments {
    long sequences = 300, seed = 1, first = 0, jobs = 4, peer_timeout = 2, timeout = 20, shown = 20;
    const char *only = nullptr; // a disagreement
    bool shows_table = false;
    Scope scope;
};

void end_with_parent() { prctl(PR_SET_PDEATHSIG, SIGKILL); }

// Sums over the sequences of a job.
struct Tally {
    long played = 0, failed = 0, repeated = 0;
    double longest_s = 0;
    long by_breach[breaches] = {};
    long all[disagreements][kinds] = {}, broken[disagreements][kinds] = {};

    void add(const Tally &other) {
        played += other.played;
        failed += other.failed;
        repeated += other.repeated;
        longest_s = std::max(longest_s, other.longest_s);
        for (int i = 0; i < breaches; i++) by_breach[i] += other.by_breach[i];
        for (int i = 0; i < disagreements; i++)
            for (int j = 0; j < kinds; j++) {
                all[i][j] += other.all[i][j];
                broken[i][j] += other.broken[i][j];
            }
    }
};

// Processes that play ranks, a sequence after the other; the first plays those that are threads.
// Their parent calls nothing of the library, so that it can fork new ones at any time.
class Crew {
public:
    explicit Crew(Scope scope) : scope_(scope) {
        sem_init(&shared().ends, 1, 0);
        for (int rank = 0; rank < max_ranks; rank++) {
            sem_init(&shared().starts[rank], 1, 0);
            processes_.start([this, rank] { serve(rank); });
        }
    }

    const Stage &stage() const { return shared().stage; }

    // Whether all ranks have come to an end in time. If not, the crew is of no more use.
    bool play(const Sequence &sequence, double seconds) {
        prepare(shared().stage, sequence);
        shared().seed = sequence.seed;
        const int busy = sequence.runner == Runner::processes ? sequence.ranks : 1;
        for (int rank = 0; rank < busy; rank++) sem_post(&shared().starts[rank]);
        timespec until{};
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_sec += static_cast<time_t>(seconds);
        for (int ended = 0; ended < busy;) {
            if (wait_for_an_end(until))
                ended++;
            else if (has_died() || is_past(until))
                return false;
        }
        return true;
    }

private:
    struct Shared {
        sem_t starts[max_ranks], ends;
        uint64_t seed;
        Stage stage;
    };
    Shared &shared() const { return memory_[0]; }

    [[noreturn]] void serve(int rank) {
        end_with_parent();
        for (;;) {
            while (sem_wait(&shared().starts[rank]) != 0) {}
            const Sequence sequence = make_sequence(shared().seed, scope_);
            if (sequence.runner == Runner::processes)
                play_rank(sequence, rank, shared().stage);
            else
                play_threads(sequence, shared().stage);
            sem_post(&shared().ends);
        }
    }

    // Looks up every quarter of a second, for ranks that have died.
    bool wait_for_an_end(const timespec &last) const {
        timespec until{};
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += 250'000'000;
        if (until.tv_nsec >= 1'000'000'000) {
            until.tv_nsec -= 1'000'000'000;
            until.tv_sec++;
        }
        return sem_timedwait(&shared().ends, until.tv_sec < last.tv_sec ? &until : &last) == 0;
    }
    static bool is_past(const timespec &until) {
        timespec now{};
        clock_gettime(CLOCK_REALTIME, &now);
        return now.tv_sec > until.tv_sec;
    }
    bool has_died() const {
        for (int rank = 0; rank < max_ranks; rank++)
            if (processes_.reap(rank, [] { return false; })) return true;
        return false;
    }

    const Scope scope_;
    const mortals::Reports<Shared> memory_{1};
    mortals::Processes processes_;
};

// Every `jobs`-th of the sequences, in a process of its own.
class Job {
public:
    Job(const Arguments &arguments, long number, Tally &tally)
        : arguments_(arguments), number_(number), tally_(tally) {}

    void run() {
        for (long i = number_; i < arguments_.sequences; i += arguments_.jobs)
            play(arguments_.first + i);
    }

private:
    void play(long number) {
        const auto seed =
            static_cast<uint64_t>(arguments_.seed) * 1'000'003 + static_cast<uint64_t>(number);
        const Sequence sequence = make_sequence(seed, arguments_.scope);
        if (arguments_.only != nullptr &&
            std::strcmp(arguments_.only, name(sequence.disagreement)) != 0)
            return;
        Verdict verdict = play_once(sequence);
        if (may_be_load(verdict)) {
            print(sequence, number, verdict);
            tally_.repeated++;
            verdict = play_once(sequence);
        }
        note(sequence, verdict);
        if (verdict.breaches.empty() || tally_.failed * arguments_.jobs > arguments_.shown) return;
        print(sequence, number, verdict);
    }

    void print(const Sequence &sequence, long number, const Verdict &verdict) const {
        std::string said = say("sequence %ld of seed %ld breaks:", number, arguments_.seed);
        for (const Breach breach : verdict.breaches) said += std::string(" ") + name(breach);
        said += "\n  " + text(sequence) + results_text(sequence, crew_->stage()) + "\n";
        std::fputs(said.c_str(), stdout); // at once, because jobs share the stream
        std::fflush(stdout);
    }

    Verdict play_once(const Sequence &sequence) {
        if (!crew_ || !is_crew_whole_) crew_ = std::make_unique<Crew>(arguments_.scope);
        const double seconds = patience_s + static_cast<double>(arguments_.timeout);
        is_crew_whole_ = crew_->play(sequence, seconds);
        return judge(sequence, crew_->stage(), is_crew_whole_,
                     static_cast<double>(arguments_.peer_timeout));
    }
    static bool may_be_load(const Verdict &verdict) {
        return !verdict.breaches.empty() &&
               std::all_of(verdict.breaches.begin(), verdict.breaches.end(),
                           [](Breach breach) { return sequences::may_be_load(breach); });
    }

    void note(const Sequence &sequence, const Verdict &verdict) {
        const auto row = static_cast<size_t>(sequence.disagreement);
        const auto column = static_cast<size_t>(verdict.further);
        tally_.played++;
        tally_.longest_s = std::max(tally_.longest_s, verdict.longest_s);
        tally_.all[row][column]++;
        for (const Breach breach : verdict.breaches)
            tally_.by_breach[static_cast<size_t>(breach)]++;
        if (verdict.breaches.empty()) return;
        tally_.broken[row][column]++;
        tally_.failed++;
    }

    const Arguments &arguments_;
    const long number_;
    Tally &tally_; // shared with the parent
    std::unique_ptr<Crew> crew_;
    bool is_crew_whole_ = false;
};

// Broken of all, by what the odd rank does and by the further call.
void show_table(const Tally &tally) {
    std::printf("%-11s", "");
    for (int kind = 0; kind < kinds; kind++) std::printf(" %14s", name(static_cast<Kind>(kind)));
    for (int row = 0; row < disagreements; row++) {
        std::printf("\n%-11s", name(static_cast<Disagreement>(row)));
        for (int kind = 0; kind < kinds; kind++)
            std::printf(" %14s",
                        say("%ld/%ld", tally.broken[row][kind], tally.all[row][kind]).c_str());
    }
    std::printf("\n");
}

bool has_flag(int argc, char **argv, const char *name) {
    return std::any_of(argv + 1, argv + argc,
                       [&](const char *text) { return std::strcmp(text, name) == 0; });
}

Arguments read_arguments(int argc, char **argv) {
    Arguments read;
    if (const char *text = std::getenv("QTEST_SEQUENCES"))
        read.sequences = std::strtol(text, nullptr, 10);
    const auto take = [&](const char *option, long &value) {
        value = number_after(argc, argv, option, value);
    };
    take("--sequences", read.sequences);
    take("--seed", read.seed);
    take("--first", read.first);
    take("--jobs", read.jobs);
    take("--peer-timeout", read.peer_timeout);
    take("--timeout", read.timeout);
    take("--shown", read.shown);
    for (int i = 1; i + 1 < argc; i++)
        if (std::strcmp(argv[i], "--only") == 0) read.only = argv[i + 1];
    read.jobs = std::clamp(read.jobs, 1L, 64L);
    read.scope.has_network = !has_flag(argc, argv, "--one-host");
    read.shows_table = has_flag(argc, argv, "--table");
    return read;
}

void set_environment(const Arguments &arguments) {
    setenv("QCCL_TIMEOUT", say("%lds", arguments.timeout).c_str(), 1);
    setenv("QCCL_PEER_TIMEOUT", say("%lds", arguments.peer_timeout).c_str(), 1);
    setenv("QCCL_UCX_DEVICES", "lo", 1);
    setenv("QCCL_SOCKET_IFNAME", "lo", 1);
    setenv("QCCL_ARENA", "2M", 0);             // most of a creation is giving out its memory
    setenv("QCCL_DEBUG_FILE", "/dev/null", 0); // disagreements are no news here
}

} // namespace

int main(int argc, char **argv) {
    const Arguments arguments = read_arguments(argc, argv);
    set_environment(arguments);
    const mortals::Reports<Tally> tallies(static_cast<int>(arguments.jobs));
    if (!tallies.are_there()) return 2;
    mortals::Processes jobs;
    for (int job = 0; job < arguments.jobs; job++) {
        const bool has_started = jobs.start([&] {
            end_with_parent();
            Job(arguments, job, tallies[job]).run();
            _exit(0);
        });
        if (!has_started) return 2;
    }
    Tally sum;
    bool has_crashed = false;
    for (int job = 0; job < arguments.jobs; job++) {
        const auto status = jobs.reap(job, [] { return true; });
        has_crashed = has_crashed || !status || *status != 0;
        sum.add(tallies[job]);
    }
    if (arguments.shows_table || sum.failed > 0) show_table(sum);
    std::printf("%ld sequences (seed %ld, from %ld on), %ld failed, %ld played again, longest call "
                "%.2f s;",
                sum.played, arguments.seed, arguments.first, sum.failed, sum.repeated,
                sum.longest_s);
    for (int i = 0; i < breaches; i++)
        if (sum.by_breach[i] > 0)
            std::printf(" %s %ld", name(static_cast<Breach>(i)), sum.by_breach[i]);
    std::printf("\n");
    const bool has_played = sum.played > 0 && (arguments.only || sum.played == arguments.sequences);
    const bool is_in_time = sum.repeated <= 1 + sum.played / 1000;
    return sum.failed == 0 && !has_crashed && has_played && is_in_time ? 0 : 1;
}
