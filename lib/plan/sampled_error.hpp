// Estimates the error of a result from samples of one rank's values and of the result. Used by
// guards and audits. Pure; any thread.
#pragma once

#include "plan/planner.hpp"

namespace qccl {

// How often a plan encodes values on their way, and with which codecs.
struct EncodeCounts {
    Codec codec, inner_codec;
    double encodes = 0, inner_encodes = 0;
    double summands = 1;

    bool loses() const;
};
EncodeCounts encode_counts(const Plan &plan);

// What samples of one call, or of many, show. Losses are those of one encode.
struct SampledValues {
    Loss loss, inner_loss;
    // How many times stronger a sum of independent values like this rank's would be than the result
    // is. Above 1, ranks cancel each other out, so that errors weigh more.
    double cancellation = 1;
};

// Estimates the NMSE of the result: each encode loses what one loses in the samples, composed as in
// predicted_nmse(). Ranks that resemble each other make the result stronger, and their errors too
// if the errors resemble each other as much. The estimate assumes that they do, so that it is not
// too low for such data. The estimate also assumes that the other ranks' values are about as large
// as this rank's.
double estimated_nmse(const EncodeCounts &counts, const SampledValues &values);

// Returns SampledValues::cancellation. `own` is the sum of squares of this rank's values; for 0 the
// function returns 1. `result` is the sum of squares of the result at the same places.
double cancellation_of(double own, double result, double summands);

// Returns the one that loses more.
Loss greater(const Loss &a, const Loss &b);

} // namespace qccl
