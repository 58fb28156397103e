// Plays random programs (random_program.hpp). Those that break no rule must end with the right
// bytes on every rank. In those that break one, every rank of the communicator must get the error
// that the rule has, and nothing else may go wrong. Several jobs run at a time, each with processes
// of its own. Uses the public API alone.
//
//     random_programs [--programs 900] [--broken 60] [--seed 1] [--first 0] [--jobs 4] [--batch
//     32]
//                     [--peer-timeout 2] [--timeout 20] [--shown 10] [--one-host] [--rule NAME]
//
// All programs whose numbers have the same quotient by `batch` run in one world. A seed and a
// number identify a program: `--seed S --first N --programs 1 --broken 0` plays it again by itself,
// and
// `--programs 0 --broken 1` one that breaks a rule. QTEST_PROGRAMS sets the number of programs; a
// fifteenth as many break a rule.
//
// Other work on the machine may keep a rank from its core for seconds. So a program that breaks a
// rule, took too long and has nothing else wrong is played once more. The run fails if that happens
// to more than one in a hundred.
#include "program_judge.hpp"
#include "tests/stress/program_processes.hpp"

#include <algorithm>
#include <memory>

namespace {

using namespace stress;
using killable::number_after;
using killable::say;

constexpr double stuck_s = 60;  // without progress of any rank
constexpr int hosts_one_in = 6; // of the worlds, one has several hosts
constexpr uint64_t settings_salt = 7919, broken_salt = 104'729;

struct Arguments {
    long programs = 900, broken = 60, seed = 1, first = 0, jobs = 4, batch = 32;
    long peer_timeout = 2, timeout = 20, shown = 10;
    const char *rule = nullptr; // play only programs that break this one
    bool has_network = true;
};

struct ProgramCounts {
    long played = 0, failed = 0, broken = 0, broken_failed = 0, repeated = 0;
    long by_rule[rules] = {}, failed_by_rule[rules] = {};
    void add(const ProgramCounts &other) {
        played += other.played;
        failed += other.failed;
        broken += other.broken;
        broken_failed += other.broken_failed;
        repeated += other.repeated;
        for (int i = 0; i < rules; i++) {
            by_rule[i] += other.by_rule[i];
            failed_by_rule[i] += other.failed_by_rule[i];
        }
    }
};

// Plays every `jobs`-th batch, and every `jobs`-th program that breaks a rule, in a process of its
// own.
class ProgramJob {
public:
    ProgramJob(const Arguments &arguments, long number, ProgramCounts &counts)
        : arguments_(arguments), number_(number), counts_(counts) {}

    void run() {
        // No rank of a right program is waited for in vain, so load alone makes ranks late.
        set_peer_timeout(arguments_.timeout);
        const long last = arguments_.first + arguments_.programs; // the one before
        const long first_batch = arguments_.first / arguments_.batch;
        for (long batch = first_batch + number_; batch * arguments_.batch < last;
             batch += arguments_.jobs)
            play_batch(batch, std::max(arguments_.first, batch * arguments_.batch),
                       std::min(last, (batch + 1) * arguments_.batch));
        processes_.reset();
        set_peer_timeout(arguments_.peer_timeout);
        for (long i = number_; i < arguments_.broken; i += arguments_.jobs)
            play_broken(arguments_.first + i);
    }

private:
    // Of processes that are started from now on.
    static void set_peer_timeout(long seconds) {
        setenv("QCCL_PEER_TIMEOUT", say("%lds", seconds).c_str(), 1);
    }
    Random random_of(uint64_t salt, long number) const {
        return Random((static_cast<uint64_t>(arguments_.seed) * salt << 32) +
                      static_cast<uint64_t>(number));
    }

    // Goes on behind each program that fails.
    void play_batch(long batch_number, long first, long last) {
        Random random = random_of(settings_salt, batch_number);
        Batch batch{static_cast<uint64_t>(arguments_.seed), first, last - first,
                    draw_setting(random, arguments_.has_network, hosts_one_in), Rule::none};
        while (batch.size > 0) {
            const bool has_ended = play(batch);
            const auto findings = judge_right(batch, processes_->stage(), has_ended);
            long next = last;
            for (const Finding &finding : findings) {
                show(batch, finding);
                next = finding.program + 1;
                counts_.failed++;
                processes_.reset();
            }
            counts_.played += next - batch.first;
            batch.first = next;
            batch.size = last - next;
        }
    }

    void play_broken(long number) {
        Random random = random_of(broken_salt, number);
        Batch batch{static_cast<uint64_t>(arguments_.seed) + broken_salt, number, 1,
                    draw_setting(random, arguments_.has_network, hosts_one_in), Rule::none};
        batch.rule = draw_rule(random, batch.setting);
        if (arguments_.rule != nullptr && std::strcmp(arguments_.rule, name(batch.rule)) != 0)
            return;
        auto findings = play_and_judge(batch);
        if (!findings.empty() && findings[0].may_be_load) {
            show(batch, findings[0]);
            counts_.repeated++;
            findings = play_and_judge(batch);
        }
        const auto row = static_cast<size_t>(batch.rule);
        counts_.broken++;
        counts_.by_rule[row]++;
        if (findings.empty()) return;
        counts_.broken_failed++;
        counts_.failed_by_rule[row]++;
        show(batch, findings[0]);
        processes_.reset();
    }
    std::vector<Finding> play_and_judge(const Batch &batch) {
        const bool has_ended = play(batch);
        return judge_broken(batch, processes_->stage(), has_ended,
                            static_cast<double>(arguments_.peer_timeout) + 1.5);
    }

    // Returns whether all ranks have ended.
    bool play(const Batch &batch) {
        if (!processes_)
            processes_ =
                std::make_unique<Processes>([](const Batch &task, int rank, BatchStage &stage) {
                    if (task.setting.runner == Runner::processes)
                        play_rank(task, rank, stage);
                    else
                        play_threads(task, stage);
                });
        BatchStage &stage = processes_->stage();
        prepare(stage, batch);
        const int busy = batch.setting.runner == Runner::processes ? batch.setting.ranks : 1;
        long beats = -1;
        double since = now_s();
        return processes_->play(batch, busy, [&] {
            long now = 0;
            for (const RankReport &rank : stage.ranks) now += rank.beat;
            if (now != beats) since = now_s();
            beats = now;
            return now_s() - since < stuck_s;
        });
    }

    void show(const Batch &batch, const Finding &finding) {
        if (counts_.failed + counts_.broken_failed + counts_.repeated >= arguments_.shown) return;
        std::string said = say("program %ld of seed %ld", finding.program, arguments_.seed);
        if (batch.rule == Rule::none) said += say(" (in a world since %ld)", batch.first);
        said += ": " + finding.text + "\n  " + text(batch.program(finding.program)) +
                reports_text(batch, processes_->stage()) + "\n";
        std::fputs(said.c_str(), stdout); // in one write, because jobs share the stream
        std::fflush(stdout);
    }

    using Processes = RankProcesses<Batch, BatchStage>;
    const Arguments &arguments_;
    const long number_;
    ProgramCounts &counts_; // in memory shared with the parent
    std::unique_ptr<Processes> processes_;
};

Arguments read_arguments(int argc, char **argv) {
    Arguments read;
    if (const char *text = std::getenv("QTEST_PROGRAMS")) {
        read.programs = std::strtol(text, nullptr, 10);
        read.broken = read.programs / 15;
    }
    const auto take = [&](const char *option, long &value) {
        value = number_after(argc, argv, option, value);
    };
    take("--programs", read.programs);
    take("--broken", read.broken);
    take("--seed", read.seed);
    take("--first", read.first);
    take("--jobs", read.jobs);
    take("--batch", read.batch);
    take("--peer-timeout", read.peer_timeout);
    take("--timeout", read.timeout);
    take("--shown", read.shown);
    for (int i = 1; i < argc; i++) {
        if (std::strcmp(argv[i], "--one-host") == 0) read.has_network = false;
        if (i + 1 < argc && std::strcmp(argv[i], "--rule") == 0) read.rule = argv[i + 1];
    }
    read.jobs = std::clamp(read.jobs, 1L, 64L);
    read.batch = std::clamp(read.batch, 1L, max_batch);
    return read;
}

void set_environment(const Arguments &arguments) {
    setenv("QCCL_TIMEOUT", say("%lds", arguments.timeout).c_str(), 1);
    setenv("QCCL_UCX_DEVICES", "lo", 1);
    setenv("QCCL_SOCKET_IFNAME", "lo", 1);
    setenv("QCCL_ARENA", "2M", 0); // creation spends most of its time on filling this memory
    setenv("QCCL_DEBUG_FILE", "/dev/null", 0); // the log would be full of expected errors
}

void show_counts(const Arguments &arguments, const ProgramCounts &sum) {
    for (int rule = 1; rule < rules; rule++)
        if (sum.failed_by_rule[rule] > 0 || arguments.rule != nullptr)
            std::printf("%s: %ld of %ld failed\n", name(static_cast<Rule>(rule)),
                        sum.failed_by_rule[rule], sum.by_rule[rule]);
    std::printf("%ld programs (seed %ld, from %ld on), %ld failed; %ld with a broken rule, %ld "
                "failed, %ld played again\n",
                sum.played, arguments.seed, arguments.first, sum.failed, sum.broken,
                sum.broken_failed, sum.repeated);
}

} // namespace

int main(int argc, char **argv) {
    const Arguments arguments = read_arguments(argc, argv);
    set_environment(arguments);
    const auto [sum, have_started, has_crashed] =
        run_jobs<ProgramCounts>(arguments.jobs, [&](int job, ProgramCounts &counts) {
            ProgramJob(arguments, job, counts).run();
        });
    if (!have_started) return 2;
    show_counts(arguments, sum);
    const bool has_played = sum.played == arguments.programs &&
                            (sum.broken == arguments.broken || arguments.rule != nullptr) &&
                            sum.played + sum.broken > 0;
    const bool is_in_time = sum.repeated <= 1 + sum.broken / 100;
    return sum.failed + sum.broken_failed == 0 && !has_crashed && has_played && is_in_time ? 0 : 1;
}
