// What the error of a result is, estimated from samples of one rank's values and of the result. Of
// guards and audits; pure, any thread.
#pragma once

#include "plan/planner.hpp"

namespace qccl {

// How often values are encoded on their way, and with what, as a plan has it.
struct EncodeCounts {
    Codec codec, inner_codec;
    double encodes = 0, inner_encodes = 0;
    double summands = 1;

    bool loses() const;
};
EncodeCounts encode_counts(const Plan &plan);

// What samples of one call, or of many, have shown. Losses are of one encode.
struct SampledValues {
    Loss loss, inner_loss;
    // How many times stronger a sum of independent values like this rank's would be than the
    // result is: above 1 where ranks cancel each other out, so that errors weigh more.
    double cancellation = 1;
};

// Of the result: each encode loses what one loses in the samples, composed as predicted_nmse does.
// Ranks that resemble each other make the result stronger, and their errors too where they resemble
// each other as much: that is taken for granted, so that the estimate is not too low for such data.
// It supposes that the other ranks' values are about as large as this one's.
double estimated_nmse(const EncodeCounts &counts, const SampledValues &values);

// `own` is the square of this rank's values, of which 0 says nothing, `result` that of the result
// at the same places.
double cancellation_of(double own, double result, double summands);

// The one that loses more.
Loss greater(const Loss &a, const Loss &b);

} // namespace qccl
