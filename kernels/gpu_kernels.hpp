// The GPU kernels as functions of the host. The vendors' runtime_*.hpp launch them.
#pragma once

#include "kernels/batch.hpp"
#include "kernels/kernel_list.hpp"
#include "kernels/port.hpp"

namespace qccl::QCCL_GPU {

using KernelFunction = void (*)(Batch batch);
KernelFunction kernel(KernelId id);

} // namespace qccl::QCCL_GPU
