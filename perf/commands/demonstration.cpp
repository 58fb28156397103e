// Implements demonstration.hpp: a perceptron with two hidden layers, in plain loops, and plans of
// the sum on three networks of hosts with one rank each.
#include "perf/commands/demonstration.hpp"

#include "perf/cli/machine_options.hpp"
#include "perf/info/advice.hpp"
#include "perf/report/tool_files.hpp"
#include "perf/run/input_data.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <thread>

namespace qccl::perf {

// ---- Gradients

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
    MachineQuestion question;
    question.topology = std::to_string(ranks) + " x node(" +
                        std::to_string(std::max(1U, std::thread::hardware_concurrency())) +
                        " core) net:" + rate;
    question.bytes_per_second = uint64_t{gigabits} * 1'000'000'000 / 8; // overrides settings
    return find_machine(question);
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

void print_network_advice(const Operation &operation, const Source &data) {
    if (operation.ranks < 2 || !info(operation.type).is_float) return;
    std::printf("\nInside one machine memory is the bound, and a codec gains little. The same data "
                "summed over %u hosts\nwith a process each (times are predicted, errors measured):"
                "\n\n%-10s  %-20s %10s %10s %10s %13s\n",
                operation.ranks, "network", "codec", "NMSE", "lossless", "with codec",
                "times as fast");
    if (const Done done = print_rows(operation, data); !done)
        std::printf("\nNo advice: %s.\n", done.error().text);
}

} // namespace qccl::perf
