// The scalar reference: the kernels that define the bytes. Slow; whatever else computes codecs is
// compared with it. Any thread may call.
#pragma once

#include "device/kernels.hpp"

namespace qccl {

const Kernels &scalar_kernels();

} // namespace qccl
