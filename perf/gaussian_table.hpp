// Generates values to measure codecs with. Used by the codec benchmarks of host and GPU. Any
// thread.
#pragma once

#include "kernels/kernels.hpp"

#include <cstddef>

namespace qccl {

// normal: like gradients. even: with uniformly distributed values `topk` takes longest to find its
// threshold.
enum class SourceValues : uint8_t { normal, even };

// Fills `dst` with `count` values by repeating a table of such values.
void fill_source(DataType type, const Kernels &kernels, std::byte *dst, size_t count,
                 SourceValues values = SourceValues::normal);

} // namespace qccl
