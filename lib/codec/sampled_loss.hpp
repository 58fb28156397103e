// The loss of a codec as measured on samples. Used by the engine's call sampler and by the audit.
#pragma once

#include "codec/codec.hpp"

namespace qccl {

// Sums over the samples: over their values x and over the errors e of the decoded values.
struct SampledLoss {
    double square = 0;  // of x * x
    double product = 0; // of x * e
    double error = 0;   // of e * e

    void add(const SampledLoss &other) {
        square += other.square;
        product += other.product;
        error += other.error;
    }
    double nmse() const { return square == 0 ? 0 : error / square; }
    // The loss of one encode; zero if all values are zeros.
    Loss loss() const {
        if (square == 0) return {};
        // The decoded value is x + e, so its product with x is square + product.
        return {.shrink = -product / square, .growth = (2 * product + error) / square};
    }
};

} // namespace qccl
