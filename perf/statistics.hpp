// Computes mean, median and percentiles of a list of times. Used by all measurements. Any thread;
// nothing blocks.
#pragma once

#include <span>

namespace qccl::perf {

// All zero if there are no values.
struct Statistics {
    double mean = 0;
    double median = 0; // for an even number of values: the mean of the middle two
    double p95 = 0;    // nearest rank, as in nccl-tests
    double p99 = 0;
    double min = 0;
    double max = 0;
    double deviation = 0; // of the whole population
};

Statistics statistics(std::span<const double> values);

} // namespace qccl::perf
