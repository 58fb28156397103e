// What codecs lose: as expected of Gaussian values; upper bounds on data as programs sum them
// (heavy tails, blocks of mixed scale, ranks that resemble each other), which exceed what is
// expected; and as measured on samples. The planner predicts by the first and chooses a codec for a
// budget by the second. The engine's call sampler and the audit use the third. Pure; any thread may
// call.
#pragma once

#include "codec/codec.hpp"

#include <span>

namespace qccl {

// ---- Expected losses

// Returns the expected NMSE of one encode of Gaussian values of any variance (nu of the error
// prediction), of tbq and bound:abs of variance 1; 0 for none and for casts that do not narrow; of
// shared with the scales of one rank.
// Integrates numerically, which takes up to 2 ms: callers keep the result.
double unit_nmse(const Codec &codec, DataType type);

// The effect of encoding on a value as part of a sum, after Bussgang's theorem (1952): the decoded
// value is 1 - shrink times the value, plus noise that is not correlated with the value; the mean
// square of the decoded value is 1 + growth times the value's.
struct Loss {
    double shrink = 0, growth = 0;

    // The mean square of the difference, in units of the value's mean square.
    double nmse() const { return 2 * shrink + growth; }
    Loss followed_by(const Loss &next) const;
};

// Returns the loss of a sum of `summands` independent Gaussian values with mean zero, each of which
// is encoded `encodes` times on its way, on average. Fine codecs only add noise, and the noise of
// all encodes adds up. The part that `topk` drops and `onebit` averages away is not correlated with
// the rest, so the loss never exceeds the values: with nu for unit_nmse it is 1 - (1 - nu)^encodes.
// `dummy` drops the same part each time. `terngrad` is right on average except for the values that
// it clips, and its noise is encoded again: the noise grows by a factor with each encode, up to
// that of a sum whose terms all have their largest values in one place. The noise of `norm` is
// encoded again, too, if its levels are uniform and it rounds with noise. Calls unit_nmse.
Loss loss_of(const Codec &codec, DataType type, double encodes, double summands);
// Returns the loss of such a sum if one encode is known to lose `once`.
Loss repeated(const Codec &codec, const Loss &once, double encodes, double summands);

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
