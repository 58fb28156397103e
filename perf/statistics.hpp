// What a list of times says: mean, median, percentiles. Pure.
#pragma once

#include <span>

namespace qccl::perf {

// All zero where there are no values.
struct Statistics {
    double mean = 0;
    double median = 0; // of an even number: the mean of the middle two
    double p95 = 0;    // nearest rank, as nccl-tests has it
    double p99 = 0;
    double min = 0;
    double max = 0;
    double deviation = 0; // of the whole population
};

Statistics statistics(std::span<const double> values);

} // namespace qccl::perf
