// Upper bounds of a codec's error on data as programs sum them (heavy tails, blocks of mixed scale,
// ranks that resemble each other), and the loss as measured on samples. The planner chooses a codec
// for a budget by the bounds; loss_of (codec.hpp) assumes Gaussian values, and such data exceed its
// result. The engine's call sampler and the audit use the measured loss. Pure; any thread may call.
#pragma once

#include "codec/codec.hpp"

#include <span>

namespace qccl {

// ---- Bounds

// Each figure is a tenth above the largest NMSE of one encode that was found over
//  - gradients of convolutional networks and of a transformer, and the density of a mesh;
//  - Gaussian values times scales: log-normal ones for every value, every 8th, 32nd and 4096th
//    (kurtosis 3 to 1000), Student's t with 3 degrees of freedom, nine of ten values zero, and
//    outliers 5 to 100 times as large, one of 8 to 512 values;
// whether ranks are independent, correlated, or all have the same values. For integers of 6 bits
// and more the figure is a tenth above n / 12 / 4^(b - 1) in blocks of n, which no data exceed
// whose errors are spread evenly within a step.
//
// The NMSE of a sum is at most the figure times the encodes of the schedule (Cost::noise). This was
// measured with all algorithms over 2 to 16 ranks and with rings of 64. It holds as long as the sum
// is as strong as its terms together (the mean square of the sum is at least the sum of the ranks'
// mean squares, as with independent ranks). If ranks cancel each other out, the same error is a
// larger part of the rest, and no figure holds. No figure holds either if values are encoded much
// more often on their way: in long rings small terms are added to large sums again and again, and
// are rounded the same way each time.
// The figures do not contain the loss of rounding the result to a type of 16 bits or fewer:
// unencoded values have that loss, too.
struct BoundedCodec {
    Codec codec;
    double nmse;         // of one encode
    double most_encodes; // average number of encodes of a value up to which the bound was found to
                         // hold
};

// The codecs that auto chooses from, ordered by bits. Others have no bound: the range of fp16 and
// fp8 depends on the scale of the data, minmax with large buckets on outliers, mx on how often sums
// are encoded.
std::span<const BoundedCodec> bounded_codecs();
// Returns nullptr if the codec has no bound.
const BoundedCodec *bound_of(const Codec &codec);

// Returns the bits that a value takes in a long vector, without headers; of a codec that packs its
// chunks, what usual values take.
double bits_per_value(const Codec &codec, DataType type);
// Returns the part of its bytes that a payload of usual values keeps when it is packed
// (Codec::packs): coded exponents of gradients take about 3 bits; the codes under a scale of their
// own block are used nearly evenly, and those under the scale of a whole chunk lie close to zero.
double usual_packed_share(const Codec &codec, DataType type);

// ---- Measured loss

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
