// Implements qccl-perf demo: trains a small network or reads files, sums the gradients with each
// codec, and prints a table and advice.
#include "perf/commands/perf_commands.hpp"

#include "base/text.hpp"
#include "perf/cli/command_line.hpp"
#include "perf/commands/demonstration.hpp"
#include "perf/commands/perf_command.hpp"
#include "perf/report/report.hpp"
#include "perf/report/tool_files.hpp"
#include "perf/run/benchmark.hpp"
#include "perf/run/launch.hpp"
#include "perf/run/session.hpp"

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <set>

#include <CLI/CLI.hpp>

namespace qccl::perf {

static constexpr uint32_t training_steps = 20;
static constexpr float learning_rate = 0.1F;

struct DemoArguments {
    uint32_t ranks = 4;
    std::string codecs = "none,bf16,int8,int4,minmax";
    std::string input;
    uint64_t seed = 1;
    uint32_t iterations = 50;
};

// The gradients of all ranks, held by every rank.
class Gradients final : public Source {
public:
    Gradients(std::vector<float> all, size_t count) : all_(std::move(all)), count_(count) {}

    uint64_t count() const { return count_; }
    void read(uint32_t rank, DataType, uint64_t first, size_t count,
              std::byte *dst) const override {
        std::memcpy(dst, all_.data() + rank * count_ + first, count * sizeof(float));
    }
    uint32_t exact_ranks(DataType) const override { return 1; }

private:
    std::vector<float> all_;
    size_t count_;
};

struct Training {
    std::unique_ptr<Gradients> gradients;
    double first_loss = 0, last_loss = 0;
};

static Result<double> mean_over_ranks(RankGroup &rank_group, double value) {
    QCCL_TRY(const auto all, gather(rank_group, value));
    double sum = 0;
    for (const double one : all) sum += one;
    return sum / static_cast<double>(all.size());
}

// Trains a replica on every rank; equal sums keep the replicas equal. Returns the gradients after
// the last step.
static Result<Training> train(RankGroup &rank_group, qcclComm_t comm, uint64_t seed) {
    Network network(seed);
    std::vector<float> gradient(network.parameters());
    Training training;
    for (uint32_t step = 0; step <= training_steps; step++) {
        QCCL_TRY(const double loss,
                 mean_over_ranks(rank_group, network.gradient(rank_group.rank(), step, gradient)));
        if (step == 0) training.first_loss = loss;
        training.last_loss = loss;
        if (step == training_steps) break;
        QCCL_TRY(explained(qcclAllReduce(gradient.data(), gradient.data(), gradient.size(),
                                         qcclFloat32, qcclAvg, comm, QCCL_STREAM_SYNC),
                           "qcclAllReduce", comm));
        network.descend(gradient, learning_rate);
    }
    std::vector<float> all(gradient.size() * rank_group.size());
    QCCL_TRY(rank_group.allgather(gradient.data(), all.data(), gradient.size() * sizeof(float)));
    training.gradients = std::make_unique<Gradients>(std::move(all), gradient.size());
    return training;
}

static void print_story(const Training &training, uint32_t ranks) {
    std::printf("A network of %" PRIu64
                " parameters was trained for %u steps by %u processes, one mini-batch "
                "each;\nlossless sums kept their replicas equal, and the loss went from %.3f to "
                "%.3f. What follows "
                "sums the\ngradients of the next step.\n\n",
                training.gradients->count(), training_steps, ranks, training.first_loss,
                training.last_loss);
}

static std::string number(const char *format, std::optional<double> value) {
    char text[32] = "-";
    if (value) std::snprintf(text, sizeof text, format, *value);
    return text;
}

static void print_table(const std::vector<Row> &rows) {
    const Operation &operation = rows[0].operation;
    std::printf("Sum of %" PRIu64 " values (%s, %s) over %u processes on this machine:\n\n",
                operation.count, name(operation.type),
                memory_text(static_cast<double>(operation.bytes())).c_str(), operation.ranks);
    std::printf("%-20s %-8s %10s %8s %11s %6s %10s %10s %10s %6s %9s\n", "codec", "algo", "time",
                "speed", "wire", "ratio", "NMSE", "predicted", "max error", "ranks", "speed-up");
    std::printf("%-20s %-8s %10s %8s %11s %6s %10s %10s %10s %6s %9s\n", "", "", "(us)", "(GB/s)",
                "(B)", "", "", "", "", "agree", "");
    for (const Row &row : rows) {
        const Measurement &m = row.out_of_place;
        std::printf("%-20s %-8s %10.1f %8.2f %11" PRIu64 " %6s %10s %10s %10s %6s %9s\n",
                    spec(row.shown_codec()).c_str(), row.algorithm.c_str(), m.time_us.median,
                    operation.algbw(m.time_us.median * 1e-6), m.wire_bytes,
                    number("%.2f", m.ratio).c_str(), number("%.2e", m.nmse).c_str(),
                    number("%.2e", row.nmse_predicted).c_str(),
                    number("%.2e", m.max_abs_err).c_str(),
                    m.ranks_agree.value_or(true) ? "yes" : "NO", number("%.2f", m.speedup).c_str());
    }
    std::set<std::string> overflows;
    for (const Row &row : rows)
        if (const std::string overflow = overflow_note(row);
            !overflow.empty() && overflows.insert(overflow).second)
            std::printf("\n%s\n", overflow.c_str());
    std::printf("\ntime: median of the slowest process; wire: the most bytes that a process sends; "
                "NMSE: squared\n"
                "error over squared exact sum. The prediction assumes inputs that are independent "
                "between ranks\n"
                "and have mean zero. Real data are correlated, so that the measured error may be "
                "another.\n");
}

static Result<int> play(const DemoArguments &demo, PerfArguments arguments, const Source *files,
                        RankGroup &rank_group) {
    QCCL_TRY(const CommHandle comm, create_comm(rank_group, lossless_config()));
    Training training;
    if (!files) {
        QCCL_TRY(training, train(rank_group, comm.get(), demo.seed));
        arguments.min_bytes = arguments.max_bytes = training.gradients->count() * sizeof(float);
    }
    QCCL_TRY(const RankDevice host, RankDevice::open("host"));
    const RankContext stage{.rank_group = rank_group,
                            .comm = comm.get(),
                            .source = files ? *files : *training.gradients,
                            .arguments = arguments,
                            .device = host};
    const bool tells = rank_group.rank() == 0;
    std::vector<Row> rows;
    QCCL_TRY(run_benchmark(stage, {.progress = [](const auto &...) {},
                                   .row = [&rows](const Row &row) { rows.push_back(row); },
                                   .note =
                                       [tells](const std::string &sentence) {
                                           if (tells) std::printf("%s\n", sentence.c_str());
                                       }}));
    if (tells && training.gradients) print_story(training, rank_group.size());
    if (tells && !demo.input.empty() && demo.input.find("%r") == std::string::npos)
        std::printf("%s\n\n", one_file_note(demo.input).c_str());
    QCCL_TRY(const auto caveat, non_finite_note(rank_group, stage.source, rows[0].operation.type,
                                                rows[0].operation.count));
    if (tells && !caveat.empty()) std::printf("%s\n\n", caveat.c_str());
    if (tells && std::getenv("QCCL_CODEC"))
        std::printf("QCCL_CODEC is not used here: --codec says what is summed\n\n");
    if (tells) print_table(rows);
    if (tells) print_network_advice(rows[0].operation, stage.source);
    const bool is_right = std::all_of(rows.begin(), rows.end(), [](const Row &row) {
        return row.out_of_place.wrong == 0 && row.in_place.wrong == 0;
    });
    if (!is_right && tells) std::printf("\nSome results are WRONG.\n");
    return is_right ? EXIT_SUCCESS : EXIT_FAILURE;
}

static Result<std::unique_ptr<Files>> open_files(const DemoArguments &demo) {
    if (demo.input.empty()) return std::unique_ptr<Files>();
    return Files::open(demo.input, demo.ranks);
}

static Result<int> run(const DemoArguments &demo) {
    PerfArguments arguments;
    arguments.ranks = demo.ranks;
    arguments.iterations = demo.iterations;
    arguments.warmup_iterations = 2;
    QCCL_TRY(arguments.codecs, parse_codec_list(demo.codecs));
    QCCL_TRY(const std::unique_ptr<Files> files, open_files(demo));
    if (files) {
        arguments.types = std::vector{files->type()};
        arguments.min_bytes = arguments.max_bytes = files->count() * type_bytes(files->type());
    }
    QCCL_TRY(check_combinations(arguments));
    return launch_processes(demo.ranks, [&](RankGroup &rank_group) {
        const Result<int> played = play(demo, arguments, files.get(), rank_group);
        if (played) return *played;
        return complain(rank_group, played.error());
    });
}

int run_demo(const std::vector<std::string> &arguments) {
    static constexpr auto *group = "Options";
    static constexpr auto *program = "qccl-perf demo";
    DemoArguments demo;
    CLI::App app("Sums real gradients over several processes, lossless and compressed.", program);
    app.set_version_flag("--version", version_line("qccl-perf"));
    add_option(app, group, "--input",
               "DIR/rank%r.npy: each rank's data (%r: its number); without, a network is trained",
               take_text(demo.input));
    add_option(app, group, "--ranks", "processes (4)", take_count(demo.ranks, 1, 256));
    add_option(app, group, "--codec", "codecs, separated by commas (" + demo.codecs + ")",
               take_text(demo.codecs));
    add_option(app, group, "--iters", "timed calls of each (50)",
               take_count(demo.iterations, 1, 1 << 20));
    add_option(app, group, "--seed", "of the network and its data (1)",
               take_count(demo.seed, 0, UINT64_MAX));
    if (const auto answer = read_command_line(app, program, arguments)) return tell_once(*answer);
    if (how_started().launch(false) != Launch::processes)
        return tell_once(refusal(program,
                                 "it starts its processes itself; under mpirun and its like each "
                                 "process would begin a demonstration of its own"));
    const Result<int> status = run(demo);
    if (status) return *status;
    return tell(refusal(program, status.error().text));
}

} // namespace qccl::perf
