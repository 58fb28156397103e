// Implements qccl-perf demo: trains a small network or reads files, sums the gradients with each
// codec, and prints a table and advice.
//
// The small neural network, a perceptron with two hidden layers in plain loops, learns to classify
// points, so that the demonstration has real gradients. It generates its own data; the rank enters
// only the seed of a mini-batch. The advice says which codec suits these data if every rank is on a
// host of its own, by plans of the sum on three networks. Inside one machine memory is the bound,
// so compression shows no gain there.

#include "base/text.hpp"
#include "perf/cli/command_line.hpp"
#include "perf/commands/perf_commands.hpp"
#include "perf/info/advice.hpp"
#include "perf/report/measurement.hpp"
#include "perf/report/report.hpp"
#include "perf/report/tool_files.hpp"
#include "perf/run/benchmark.hpp"
#include "perf/run/input_data.hpp"
#include "perf/run/launch.hpp"
#include "perf/run/session.hpp"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cinttypes>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <set>
#include <span>
#include <thread>
#include <vector>

namespace qccl::perf {

// ---- Gradients

class Network {
public:
    explicit Network(uint64_t seed);

    // Computes the gradient of the mean loss over the mini-batch of `rank` in `step`; returns that
    // loss.
    double gradient(uint32_t rank, uint32_t step, std::span<float> gradient_out) const;
    void descend(std::span<const float> mean_gradient, float rate);
    size_t parameters() const { return weights_.size(); }

private:
    struct Layer {
        size_t inputs, outputs, first; // weights by input, then biases, from `first` on
    };
    struct Batch {
        std::vector<float> points;
        std::vector<uint32_t> classes;
    };

    Batch make_batch(uint32_t rank, uint32_t step) const;
    void forward(const Layer &layer, const float *in, float *out) const;
    void backward(const Layer &layer, const float *in, const float *out_gradient, float *gradient,
                  float *in_gradient) const;

    uint64_t seed_;
    std::vector<Layer> layers_;
    std::vector<float> weights_;
};

static constexpr size_t batch_size = 64;
// Inputs, two hidden layers, classes: a third of a million parameters.
static constexpr std::array<size_t, 4> widths{128, 512, 512, 10};
static constexpr size_t classes = widths.back();

Network::Network(uint64_t seed) : seed_(seed) {
    size_t first = 0;
    for (size_t i = 0; i + 1 < widths.size(); i++) {
        layers_.push_back({widths[i], widths[i + 1], first});
        first += (widths[i] + 1) * widths[i + 1];
    }
    weights_.assign(first, 0);
    for (const Layer &layer : layers_) {
        // He initialization, which suits rectifiers.
        const float scale = std::sqrt(2.0F / static_cast<float>(layer.inputs));
        for (size_t i = 0; i < layer.inputs * layer.outputs; i++)
            weights_[layer.first + i] = scale * gaussian(splitmix64(seed), layer.first + i);
    }
}

// A class is a cloud of points around a centre, bent so that no plane separates the clouds.
Network::Batch Network::make_batch(uint32_t rank, uint32_t step) const {
    Batch batch{std::vector<float>(batch_size * widths[0]), std::vector<uint32_t>(batch_size)};
    const uint64_t key = splitmix64(seed_ ^ splitmix64((uint64_t{rank} << 32) + step + 1));
    for (size_t s = 0; s < batch_size; s++) {
        const auto kind = static_cast<uint32_t>(splitmix64(key + s) % classes);
        batch.classes[s] = kind;
        for (size_t k = 0; k < widths[0]; k++) {
            const float centre = gaussian(splitmix64(seed_ + kind), k);
            const float noise = gaussian(splitmix64(key), s * widths[0] + k);
            batch.points[s * widths[0] + k] = std::sin(centre + noise) + 0.3F * noise;
        }
    }
    return batch;
}

void Network::forward(const Layer &layer, const float *in, float *out) const {
    const float *const weights = weights_.data() + layer.first;
    const float *const biases = weights + layer.inputs * layer.outputs;
    for (size_t s = 0; s < batch_size; s++) {
        float *const row = out + s * layer.outputs;
        std::copy_n(biases, layer.outputs, row);
        for (size_t k = 0; k < layer.inputs; k++) {
            const float x = in[s * layer.inputs + k];
            if (x == 0) continue; // half of the outputs of a rectifier
            const float *const w = weights + k * layer.outputs;
            for (size_t j = 0; j < layer.outputs; j++) row[j] += x * w[j];
        }
    }
}

static float dot(const float *a, const float *b, size_t count) {
    static constexpr size_t lanes = 8; // independent sums, so that a compiler may vectorize
    float sums[lanes] = {};
    size_t j = 0;
    for (; j + lanes <= count; j += lanes)
        for (size_t lane = 0; lane < lanes; lane++) sums[lane] += a[j + lane] * b[j + lane];
    for (; j < count; j++) sums[0] += a[j] * b[j];
    return ((sums[0] + sums[1]) + (sums[2] + sums[3])) +
           ((sums[4] + sums[5]) + (sums[6] + sums[7]));
}

void Network::backward(const Layer &layer, const float *in, const float *out_gradient,
                       float *gradient, float *in_gradient) const {
    const float *const weights = weights_.data() + layer.first;
    float *const biases = gradient + layer.inputs * layer.outputs;
    for (size_t s = 0; s < batch_size; s++) {
        const float *const delta = out_gradient + s * layer.outputs;
        for (size_t j = 0; j < layer.outputs; j++) biases[j] += delta[j];
        for (size_t k = 0; k < layer.inputs; k++) {
            const float x = in[s * layer.inputs + k];
            float *const g = gradient + k * layer.outputs;
            if (x != 0)
                for (size_t j = 0; j < layer.outputs; j++) g[j] += x * delta[j];
            // The gradient of a rectifier is zero where its output is zero.
            if (in_gradient)
                in_gradient[s * layer.inputs + k] =
                    x > 0 ? dot(weights + k * layer.outputs, delta, layer.outputs) : 0;
        }
    }
}

// Replaces the last layer's values by the gradient of the loss with respect to them; returns the
// loss.
static double cross_entropy(std::vector<float> &values, const std::vector<uint32_t> &wanted) {
    double loss = 0;
    for (size_t s = 0; s < batch_size; s++) {
        float *const row = values.data() + s * classes;
        const float largest = *std::max_element(row, row + classes);
        float sum = 0;
        for (size_t j = 0; j < classes; j++) sum += row[j] = std::exp(row[j] - largest);
        loss -= std::log(static_cast<double>(row[wanted[s]] / sum) + 1e-30);
        for (size_t j = 0; j < classes; j++) row[j] /= sum * batch_size;
        row[wanted[s]] -= 1.0F / batch_size;
    }
    return loss / batch_size;
}

double Network::gradient(uint32_t rank, uint32_t step, std::span<float> gradient_out) const {
    const Batch batch = make_batch(rank, step);
    std::vector<std::vector<float>> values{batch.points};
    for (const Layer &layer : layers_) {
        std::vector<float> out(batch_size * layer.outputs);
        forward(layer, values.back().data(), out.data());
        const bool is_hidden = &layer != &layers_.back();
        if (is_hidden)
            for (float &x : out) x = std::max(x, 0.0F);
        values.push_back(std::move(out));
    }
    const double loss = cross_entropy(values.back(), batch.classes);

    std::fill(gradient_out.begin(), gradient_out.end(), 0.0F);
    std::vector<float> delta = values.back();
    for (size_t i = layers_.size(); i-- > 0;) {
        const Layer &layer = layers_[i];
        std::vector<float> before(i > 0 ? batch_size * layer.inputs : 0);
        backward(layer, values[i].data(), delta.data(), gradient_out.data() + layer.first,
                 i > 0 ? before.data() : nullptr);
        delta = std::move(before);
    }
    return loss;
}

void Network::descend(std::span<const float> mean_gradient, float rate) {
    for (size_t i = 0; i < weights_.size(); i++) weights_[i] -= rate * mean_gradient[i];
}

// ---- Advice

static constexpr uint32_t networks[] = {1, 10, 100}; // Gbit/s

// Returns a machine of hosts like this one, with one rank each.
static Result<Machine> machine_on_network(uint32_t ranks, uint32_t gigabits) {
    const std::string rate = std::to_string(gigabits) + "gbit";
    MachineRequest request;
    request.topology = std::to_string(ranks) + " x node(" +
                       std::to_string(std::max(1U, std::thread::hardware_concurrency())) +
                       " core) net:" + rate;
    request.bytes_per_second = uint64_t{gigabits} * 1'000'000'000 / 8; // overrides settings
    return find_machine(request);
}

static void print_row(uint32_t gigabits, const Advice &advice, const BudgetAdvice &chosen) {
    char nmse[32] = "", faster[32] = "";
    const bool is_codec = chosen.outcome == BudgetAdvice::Outcome::codec;
    if (is_codec) {
        std::snprintf(nmse, sizeof nmse, "%.2e", chosen.trial->nmse);
        std::snprintf(faster, sizeof faster, "%.2f", gain(advice, *chosen.trial));
    }
    std::printf("%3u Gbit/s  %-20s %10s %10s %10s %13s\n", gigabits,
                is_codec ? spec(chosen.trial->codec).c_str() : "none", nmse,
                time_text(advice.lossless.cost.time_ns).c_str(),
                is_codec ? time_text(chosen.trial->plan.cost.time_ns).c_str() : "", faster);
}

static std::string setting_of(const BudgetAdvice &chosen) {
    if (chosen.outcome != BudgetAdvice::Outcome::codec) return "leave QCCL_CODEC alone";
    return "export QCCL_CODEC=" + spec(chosen.trial->codec);
}

static Done print_rows(const Operation &operation, const Source &data) {
    QCCL_TRY(const Machine first, machine_on_network(operation.ranks, networks[0]));
    // All networks have the ranks in the same places, on which the errors depend.
    ErrorMeter meter(data, {.count = operation.count,
                            .ranks = operation.ranks,
                            .type = operation.type,
                            .codec = {},
                            .places = first.places.get()});
    std::string advised, last;
    for (const uint32_t gigabits : networks) {
        QCCL_TRY(const Machine machine, machine_on_network(operation.ranks, gigabits));
        QCCL_TRY(const Advice advice, try_codecs(meter, inputs_of(machine)));
        const BudgetAdvice chosen = advise(advice, usual_nmse);
        print_row(gigabits, advice, chosen);
        const std::string setting = setting_of(chosen);
        if (setting != last) advised += (advised.empty() ? "" : "; ") + setting + " at ";
        advised += (setting == last ? " and " : "") + std::to_string(gigabits) + " Gbit/s";
        last = setting;
    }
    std::printf(
        "\nFor an NMSE of at most %g: %s.\nWhere the network interfaces do not state their rate, "
        "calls stay lossless until QCCL_LINK_RATE\n(1G, 10G, 100G) or `qccl-perf calibrate` tells "
        "it. `qccl-info advise` advises for data and\nnetworks of yours.\n",
        usual_nmse, advised.c_str());
    return {};
}

// Prints a row for each of three networks, and the setting to export. Only one rank calls it; it
// does not communicate.
static void print_network_advice(const Operation &operation, const Source &data) {
    if (operation.ranks < 2 || !info(operation.type).is_float) return;
    std::printf("\nInside one machine memory is the bound, and a codec gains little. The same data "
                "summed over %u hosts\nwith a process each (times are predicted, errors measured):"
                "\n\n%-10s  %-20s %10s %10s %10s %13s\n",
                operation.ranks, "network", "codec", "NMSE", "lossless", "with codec",
                "times as fast");
    if (const Done done = print_rows(operation, data); !done)
        std::printf("\nNo advice: %s.\n", done.error().text);
}

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
    const RankContext context{.rank_group = rank_group,
                              .comm = comm.get(),
                              .source = files ? *files : *training.gradients,
                              .arguments = arguments,
                              .device = host};
    const bool tells = rank_group.rank() == 0;
    std::vector<Row> rows;
    QCCL_TRY(run_benchmark(context, {.progress = [](const auto &...) {},
                                     .row = [&rows](const Row &row) { rows.push_back(row); },
                                     .note =
                                         [tells](const std::string &sentence) {
                                             if (tells) std::printf("%s\n", sentence.c_str());
                                         }}));
    if (tells && training.gradients) print_story(training, rank_group.size());
    if (tells && !demo.input.empty())
        if (const auto note = one_file_note(demo.input); !note.empty())
            std::printf("%s\n\n", note.c_str());
    QCCL_TRY(const auto caveat, non_finite_note(rank_group, context.source, rows[0].operation.type,
                                                rows[0].operation.count));
    if (tells && !caveat.empty()) std::printf("%s\n\n", caveat.c_str());
    if (tells && std::getenv("QCCL_CODEC"))
        std::printf("QCCL_CODEC is not used here: --codec says what is summed\n\n");
    if (tells) print_table(rows);
    if (tells) print_network_advice(rows[0].operation, context.source);
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
