// Picks the best time of each kind, and compares the two.
#include "plan/partitioning.hpp"

#include <algorithm>

namespace qccl {

static PartsTime best_of(std::span<const PartsTime> times, double equal_time) {
    const double least = std::ranges::min_element(times, {}, &PartsTime::time)->time;
    return *std::ranges::find_if(
        times, [&](const PartsTime &one) { return one.time <= least * equal_time; });
}

Partitioning choose_partitioning(std::span<const PartsTime> lossless,
                                 std::span<const PartsTime> compressed,
                                 const PartitionThresholds &manners) {
    Partitioning choice;
    choice.lossless = choice.compressed = best_of(lossless, manners.equal_time);
    if (!compressed.empty()) choice.compressed = best_of(compressed, manners.equal_time);
    choice.is_compressed =
        !compressed.empty() && choice.lossless.time > choice.compressed.time * manners.least_gain;
    choice.best = choice.is_compressed ? choice.compressed : choice.lossless;
    return choice;
}

} // namespace qccl
