// Names the ranks that are being waited for, for warnings and errors of the bootstrap. Pure
// functions.
#pragma once

#include "base/result.hpp"

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace qccl {

struct Missing {
    int32_t first = Error::no_rank;
    std::string text; // "rank 3", "ranks 1, 4 and 5", "ranks 0, 1, 2, 3, 4, 5, 6, 7 and 92 more"
};

// `came`: by rank, whether it has come.
Missing missing_ranks(const std::vector<bool> &came);
// Returns the lowest rank that has come. At least one rank must have come.
uint32_t lowest_rank(const std::vector<bool> &came);

Error late_error(const Missing &missing, uint32_t size, std::chrono::nanoseconds timeout);

} // namespace qccl
