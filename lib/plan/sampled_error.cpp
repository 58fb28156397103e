// Composes the error of a result from the sampled losses of one encode.
#include "plan/sampled_error.hpp"

#include <algorithm>

namespace qccl {

bool EncodeCounts::loses() const {
    return (!codec.is_lossless() && encodes > 0) ||
           (!inner_codec.is_lossless() && inner_encodes > 0);
}

EncodeCounts encode_counts(const Plan &plan) {
    return {.codec = plan.codec,
            .inner_codec = plan.inner_codec,
            .encodes = plan.cost.noise,
            .inner_encodes = plan.cost.inner_noise,
            .summands = static_cast<double>(plan.cost.summands)};
}

double estimated_nmse(const EncodeCounts &counts, const SampledValues &values) {
    const Loss outer = repeated(counts.codec, values.loss, counts.encodes, counts.summands);
    const Loss inner =
        repeated(counts.inner_codec, values.inner_loss, counts.inner_encodes, counts.summands);
    return outer.followed_by(inner).nmse() * values.cancellation;
}

double cancellation_of(double own, double result, double summands) {
    constexpr double most = 1e12; // for ranks that cancel each other out exactly
    if (own == 0) return 1;
    return result == 0 ? most : std::clamp(summands * own / result, 1.0, most);
}

Loss greater(const Loss &a, const Loss &b) { return a.nmse() < b.nmse() ? b : a; }

} // namespace qccl
