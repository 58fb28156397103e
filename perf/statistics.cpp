// Sorts the values and computes all statistics from them.
#include "perf/statistics.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

namespace qccl::perf {

static double percentile(const std::vector<double> &sorted, size_t percent) {
    return sorted[std::max<size_t>((sorted.size() * percent + 99) / 100, 1) - 1];
}

Statistics statistics(std::span<const double> values) {
    if (values.empty()) return {};
    std::vector<double> sorted(values.begin(), values.end());
    std::sort(sorted.begin(), sorted.end());
    const size_t count = sorted.size();
    const double mean =
        std::accumulate(sorted.begin(), sorted.end(), 0.0) / static_cast<double>(count);
    double squares = 0;
    for (const double value : sorted) squares += (value - mean) * (value - mean);
    return {.mean = mean,
            .median = (sorted[(count - 1) / 2] + sorted[count / 2]) / 2,
            .p95 = percentile(sorted, 95),
            .p99 = percentile(sorted, 99),
            .min = sorted.front(),
            .max = sorted.back(),
            .deviation = std::sqrt(squares / static_cast<double>(count))};
}

} // namespace qccl::perf
