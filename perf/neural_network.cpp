// Implements neural_network.hpp: a perceptron with two hidden layers, in plain loops.
#include "perf/neural_network.hpp"

#include "perf/random.hpp"

#include <algorithm>
#include <array>
#include <cmath>

namespace qccl::perf {

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

} // namespace qccl::perf
