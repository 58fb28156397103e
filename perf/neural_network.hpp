// A small network that learns to classify points, so that the demonstration has real gradients to
// sum. Generates its own data; the rank enters only the seed of a mini-batch. Used by qccl-perf
// demo. Blocks while it computes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace qccl::perf {

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

} // namespace qccl::perf
