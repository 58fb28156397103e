// The GPU's kernels on the emulated GPU.
#pragma once

#include "base/result.hpp"
#include "kernels/batch.hpp"
#include "kernels/emulated.hpp"
#include "kernels/kernel_list.hpp"

namespace qccl {

// Launches a kernel on a GPU of so many lanes, 32 or 64, and waits for it.
Done launch_emulated(unsigned lanes, emulated::Order order, KernelId kernel, unsigned blocks,
                     const Batch &batch);

} // namespace qccl
