// Which operations of a run come to one launch: a sum over several sources. Where nobody sees it
// but who stores or encodes it, it stays in registers. Knows no addresses but by their equality.
#pragma once

#include "engine/tiles.hpp"
#include "kernels/launches.hpp"

#include <array>
#include <cstddef>
#include <optional>
#include <span>

namespace qccl {

struct FoundFold {
    std::array<const TileStep *, Launches::most_sources> sources{};
    size_t source_count = 0;
    bool divides = false;
    const TileStep *sink = nullptr; // null: the sum stays where its steps leave it
    size_t steps = 0;               // that it stands for
};

// At the front of `steps`; nothing where there is none, or where it would be no use. What later
// steps read of the sum they read of the sink from then on.
std::optional<FoundFold> find_fold(const TileContext &context, std::span<TileStep> steps);

// The range that is the step's whole chunk.
ChunkRange chunk_of(const TileContext &context, const TileStep &step);

} // namespace qccl
