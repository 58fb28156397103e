// Operations over a chunk as launches on a GPU, one after the other; the twin of tiles.hpp.
#pragma once

#include "engine/tiles.hpp"
#include "kernels/launches.hpp"

namespace qccl {

// All of them, each over the whole chunk. Every step has its strides, and none has scratch.
Done launch_steps(Launches &launches, const TileContext &context, std::span<const TileStep> steps);

} // namespace qccl
