// What a codec has been seen to make of values.
#pragma once

#include "codec/codec.hpp"

namespace qccl {

// What was found in samples: sums over their values x and over the errors e of what is decoded.
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
    // Of one encode; none of values that are all zeros.
    Loss loss() const {
        if (square == 0) return {};
        // What is decoded is x + e, so that its product with x is square + product.
        return {.shrink = -product / square, .growth = (2 * product + error) / square};
    }
};

} // namespace qccl
