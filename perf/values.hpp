// Converts values of any type to numbers for calculations: reals to double, integers to int64_t
// (unsigned 64-bit values keep their bits). Used to check results and to generate data; not
// optimized for speed. Any thread; nothing blocks.
#pragma once

#include "base/types.hpp"

#include <cstddef>
#include <cstdint>

namespace qccl::perf {

void load_reals(DataType type, const std::byte *src, size_t count, double *dst);
// Rounds once, to nearest even.
void store_reals(DataType type, const double *src, size_t count, std::byte *dst);

void load_integers(DataType type, const std::byte *src, size_t count, int64_t *dst);
void store_integers(DataType type, const int64_t *src, size_t count, std::byte *dst);

// Returns half the distance between 1 and the next value, which is the largest relative change by
// one rounding; 0 for integers.
double unit_roundoff(DataType type);
// Returns the smallest positive number of the type; 0 for integers.
double smallest_step(DataType type);

} // namespace qccl::perf
