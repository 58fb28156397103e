// Values to measure codecs with. Knows no devices.
#pragma once

#include "kernels/kernels.hpp"

#include <cstddef>

namespace qccl {

// Gradients are roughly normal. Among evenly distributed values `topk` takes longest to find its
// threshold.
enum class SourceValues : uint8_t { normal, even };

// Repeats a table of such values.
void fill_source(DataType type, const Kernels &kernels, std::byte *dst, size_t count,
                 SourceValues values = SourceValues::normal);

} // namespace qccl
