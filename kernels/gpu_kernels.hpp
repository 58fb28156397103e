// The kernels as functions of the host, for whoever launches them.
#pragma once

#include "kernels/batch.hpp"
#include "kernels/kernel_list.hpp"
#include "kernels/port.hpp"

namespace qccl::QCCL_GPU {

using KernelFunction = void (*)(Batch batch);
KernelFunction kernel(KernelId id);

} // namespace qccl::QCCL_GPU
