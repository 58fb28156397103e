// Launches operations over a chunk on a GPU, one after the other: the GPU's counterpart of
// tiles.hpp. The task executor and the GPU fast path use it. Does not wait for the GPU.
#pragma once

#include "engine/tiles.hpp"
#include "kernels/kernel_launcher.hpp"

namespace qccl {

// Launches all steps, each over the whole chunk, in as few launches as possible. The steps must
// have no scratch, and are changed. An error is the GPU's.
Done launch_steps(KernelLauncher &launcher, const TileContext &context, std::span<TileStep> steps);

} // namespace qccl
