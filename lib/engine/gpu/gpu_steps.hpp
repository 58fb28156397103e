// Launches operations over a chunk on a GPU, one after the other: the GPU's counterpart of
// run_tiles in ops.hpp. find_fold finds the operations of a run that one kernel launch can do, a
// sum over several sources; a sum that is only read by the step that stores or encodes it stays in
// registers. The task executor and the GPU fast path use launch_steps, on any thread. The functions
// compare addresses and never read what lies there; they do not wait for the GPU.
#pragma once

#include "device/kernel_launcher.hpp"
#include "engine/compile/ops.hpp"

#include <array>
#include <cstddef>
#include <optional>
#include <span>

namespace qccl {

// ---- Folds

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

// ---- Launches

// Launches all steps, each over the whole chunk, in as few launches as possible. The steps must
// have no scratch, and are changed. An error is the GPU's.
Done launch_steps(KernelLauncher &launcher, const TileContext &context, std::span<TileStep> steps);

} // namespace qccl
