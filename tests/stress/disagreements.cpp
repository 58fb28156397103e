// Plays random sequences of calls in which one rank disagrees with the others. Checks that no two
// ranks keep different results, that every rank gets an error in time, and that agreed calls are
// right (sequence_judge.hpp). Several sequences run at a time, each in processes that are kept for
// the next ones. Uses the public API alone.
//
//     disagreements [--sequences 300] [--seed 1] [--first 0] [--jobs 4] [--peer-timeout 2]
//                   [--timeout 20] [--shown 20] [--one-host] [--table] [--only root]
//
// Other work on the machine may keep a rank from its core for seconds. So a sequence that took too
// long and broke no other rule is printed and played once more. The run fails if that happens to
// more than one sequence in a thousand.
//
// --runs is the same as --sequences. Without either, QTEST_SEQUENCES sets the number of sequences.
// A seed and a number identify a sequence: `--seed S --first N --sequences 1` plays it again.
#include "program_processes.hpp"
#include "sequence_judge.hpp"

#include <algorithm>
#include <memory>

namespace {

using namespace stress;
using killable::number_after;
using killable::say;

constexpr double patience_s = 60; // for all ranks of a sequence, in addition to `timeout`

struct Arguments {
    long sequences = 300, seed = 1, first = 0, jobs = 4, peer_timeout = 2, timeout = 20, shown = 20;
    const char *only = nullptr; // play only sequences with this disagreement
    bool shows_table = false;
    Scope scope;
};

// Counts over the sequences of a job.
struct SequenceCounts {
    long played = 0, failed = 0, repeated = 0;
    double longest_s = 0;
    long by_breach[breaches] = {};
    long all[disagreements][kinds] = {}, broken[disagreements][kinds] = {};

    void add(const SequenceCounts &other) {
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

// Plays every `jobs`-th sequence, in a process of its own.
class Job {
public:
    Job(const Arguments &arguments, long number, SequenceCounts &counts)
        : arguments_(arguments), number_(number), counts_(counts) {}

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
        Judgement judgement = play_once(sequence);
        if (may_be_load(judgement)) {
            print(sequence, number, judgement);
            counts_.repeated++;
            judgement = play_once(sequence);
        }
        note(sequence, judgement);
        if (judgement.breaches.empty() || counts_.failed * arguments_.jobs > arguments_.shown)
            return;
        print(sequence, number, judgement);
    }

    void print(const Sequence &sequence, long number, const Judgement &judgement) const {
        std::string said = say("sequence %ld of seed %ld breaks:", number, arguments_.seed);
        for (const Breach breach : judgement.breaches) said += std::string(" ") + name(breach);
        said += "\n  " + text(sequence) + results_text(sequence, processes_->stage()) + "\n";
        std::fputs(said.c_str(), stdout); // in one write, because jobs share the stream
        std::fflush(stdout);
    }

    Judgement play_once(const Sequence &sequence) {
        if (!are_whole_) processes_.reset(); // which waits for all children of this process
        if (!processes_)
            processes_ = std::make_unique<Processes>(
                [scope = arguments_.scope](uint64_t seed, int rank, SequenceStage &stage) {
                    const Sequence own = make_sequence(seed, scope);
                    if (own.setting.runner == Runner::processes)
                        play_rank(own, rank, stage);
                    else
                        play_threads(own, stage);
                });
        prepare(processes_->stage(), sequence);
        const Setting &setting = sequence.setting;
        const double last = now_s() + patience_s + static_cast<double>(arguments_.timeout);
        are_whole_ =
            processes_->play(sequence.seed, setting.runner == Runner::processes ? setting.ranks : 1,
                             [&] { return now_s() < last; });
        return judge(sequence, processes_->stage(), are_whole_,
                     static_cast<double>(arguments_.peer_timeout));
    }
    static bool may_be_load(const Judgement &judgement) {
        return !judgement.breaches.empty() &&
               std::all_of(judgement.breaches.begin(), judgement.breaches.end(),
                           [](Breach breach) { return stress::may_be_load(breach); });
    }

    void note(const Sequence &sequence, const Judgement &judgement) {
        const auto row = static_cast<size_t>(sequence.disagreement);
        const auto column = static_cast<size_t>(judgement.further);
        counts_.played++;
        counts_.longest_s = std::max(counts_.longest_s, judgement.longest_s);
        counts_.all[row][column]++;
        for (const Breach breach : judgement.breaches)
            counts_.by_breach[static_cast<size_t>(breach)]++;
        if (judgement.breaches.empty()) return;
        counts_.broken[row][column]++;
        counts_.failed++;
    }

    const Arguments &arguments_;
    const long number_;
    SequenceCounts &counts_; // in memory shared with the parent
    using Processes = RankProcesses<uint64_t, SequenceStage>;
    std::unique_ptr<Processes> processes_;
    bool are_whole_ = false;
};

// Prints failed / played sequences, by the disagreement and by the further call.
void show_table(const SequenceCounts &counts) {
    std::printf("%-11s", "");
    for (int kind = 0; kind < kinds; kind++) std::printf(" %14s", name(static_cast<Kind>(kind)));
    for (int row = 0; row < disagreements; row++) {
        std::printf("\n%-11s", name(static_cast<Disagreement>(row)));
        for (int kind = 0; kind < kinds; kind++)
            std::printf(" %14s",
                        say("%ld/%ld", counts.broken[row][kind], counts.all[row][kind]).c_str());
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
    take("--runs", read.sequences);
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
    setenv("QCCL_ARENA", "2M", 0); // creation spends most of its time on filling this memory
    setenv("QCCL_DEBUG_FILE", "/dev/null", 0); // the log would be full of expected errors
}

} // namespace

int main(int argc, char **argv) {
    const Arguments arguments = read_arguments(argc, argv);
    set_environment(arguments);
    const auto [sum, have_started, has_crashed] =
        run_jobs<SequenceCounts>(arguments.jobs, [&](int job, SequenceCounts &counts) {
            Job(arguments, job, counts).run();
        });
    if (!have_started) return 2;
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
