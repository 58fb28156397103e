// Finds the operations of a run that one kernel launch can do: a sum over several sources. A sum
// that is only read by the step that stores or encodes it stays in registers. gpu_steps.cpp uses
// it. The functions compare addresses and never read what lies there; any thread.
#pragma once

#include "engine/tiles.hpp"
#include "kernels/kernel_launcher.hpp"

#include <array>
#include <cstddef>
#include <optional>
#include <span>

namespace qccl {

struct FoundFold {
    std::array<const TileStep *, KernelLauncher::most_sources> sources{};
    size_t source_count = 0;
    bool divides = false;
    const TileStep *sink = nullptr; // null: the sum stays in its accumulator
    size_t steps = 0;               // number of steps that the fold replaces
};

// Returns the fold at the front of `steps`. Nothing if there is none, or if one launch would gain
// nothing. Changes later steps that read the sum, so that they read the sink's output.
std::optional<FoundFold> find_fold(const TileContext &context, std::span<TileStep> steps);

// Returns the range that covers the step's whole chunk.
ChunkRange chunk_of(const TileContext &context, const TileStep &step);

} // namespace qccl
