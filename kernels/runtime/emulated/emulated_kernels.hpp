// Launches the library's GPU kernels on the emulated GPU, for the emulated runtime and for tests.
#pragma once

#include "base/result.hpp"
#include "device/batch.hpp"
#include "device/kernel_list.hpp"
#include "kernels/gpu/emulated.hpp"

namespace qccl {

// Launches a kernel on an emulated GPU with `lanes` lanes per warp, 32 or 64, and waits for the
// kernel. The error is that of emulated::launch.
Done launch_emulated(unsigned lanes, emulated::Order order, KernelId kernel, unsigned blocks,
                     const Batch &batch);

} // namespace qccl
