// Values to measure codecs with. Knows no devices.
#pragma once

#include "kernels/kernels.hpp"

#include <cstddef>

namespace qccl {

// Gradients are roughly normal; a table of them is repeated.
void fill_source(DataType type, const Kernels &kernels, std::byte *dst, size_t count);

} // namespace qccl
