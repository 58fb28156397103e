// Operations over a chunk as launches on a GPU, one after the other; the twin of tiles.hpp.
#pragma once

#include "engine/tiles.hpp"
#include "kernels/launches.hpp"

namespace qccl {

// All of them, each over the whole chunk, in as few launches as they come to; they are used up.
// None has scratch.
Done launch_steps(Launches &launches, const TileContext &context, std::span<TileStep> steps);

} // namespace qccl
