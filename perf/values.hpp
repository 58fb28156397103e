// Values of any type as numbers to reckon with: reals as double, integers as int64 (unsigned 64-bit
// ones by their bits). For checking and making data, not for speed.
#pragma once

#include "base/types.hpp"

#include <cstddef>
#include <cstdint>

namespace qccl::perf {

void load_reals(DataType type, const std::byte *src, size_t count, double *dst);
// One rounding to nearest even.
void store_reals(DataType type, const double *src, size_t count, std::byte *dst);

void load_integers(DataType type, const std::byte *src, size_t count, int64_t *dst);
void store_integers(DataType type, const int64_t *src, size_t count, std::byte *dst);

// Half the distance between 1 and the next value, which is the most that one rounding changes, in
// parts of the value; 0 for integers.
double unit_roundoff(DataType type);
// The smallest number above 0 that the type holds.
double smallest_step(DataType type);

} // namespace qccl::perf
