// The parts of the demonstration that know nothing of its ranks: the network whose gradients it
// sums, and the advice at its end. Used by demo_command.cpp. Calls block while they compute.
//
// The small neural network learns to classify points, so that the demonstration has real gradients.
// It generates its own data; the rank enters only the seed of a mini-batch. The advice says which
// codec suits these data if every rank is on a host of its own. Inside one machine memory is the
// bound, so compression shows no gain there.
#pragma once

#include "perf/report/measurement.hpp"
#include "perf/run/input_data.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
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

// ---- Advice

// Prints a row for each of three networks, and the setting to export. Only one rank calls it; it
// does not communicate.
void print_network_advice(const Operation &operation, const Source &data);

} // namespace qccl::perf
