// The GPU kernels as functions of the host. The vendors' runtime_*.hpp launch them.
#pragma once

#include "device/batch.hpp"
#include "kernels/gpu/port.hpp"

namespace qccl::QCCL_GPU {

using KernelFunction = void (*)(Batch batch);
KernelFunction kernel(KernelId id);

} // namespace qccl::QCCL_GPU
