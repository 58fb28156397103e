// Decides whether a tensor is compressed and into how many parts it is cut, from what each of the
// possibilities takes: selective compression and partitioning, as SeCoPa of HiPress has it (Bai et
// al., "Gradient Compression Supercharged High-Performance Data Parallel DNN Training", SOSP'21).
// Where the times come from is the caller's business: plans of tensors ask the planner, tests ask
// the published formulas. Pure; any thread, nothing blocks.
#pragma once

#include <cstdint>
#include <span>

namespace qccl {

// What a tensor takes if it is cut into so many parts, in any unit that all times share.
struct PartsTime {
    uint32_t parts = 1;
    double time = 0;
};

// How much times have to differ before they count as different. 1: at all.
struct PartitionManners {
    // Of times that differ by less than this factor, the one with the fewest parts is taken.
    double equal_time = 1;
    // A tensor is compressed if that makes it more than so many times as fast.
    double least_gain = 1;
};

struct Partitioning {
    bool is_compressed = false;
    PartsTime best = {}; // what was decided
    // The best without compression, and with it; without times for it, the latter is the former.
    PartsTime lossless = {}, compressed = {};
};

// `lossless` has at least one time, `compressed` may have none; both stand by the number of parts,
// ascending.
Partitioning choose_partitioning(std::span<const PartsTime> lossless,
                                 std::span<const PartsTime> compressed,
                                 const PartitionManners &manners = {});

} // namespace qccl
