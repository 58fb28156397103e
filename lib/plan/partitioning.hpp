// Decides whether a tensor is compressed and into how many parts it is cut, from the time that each
// possibility takes: selective compression and partitioning, as in SeCoPa of HiPress (Bai et al.,
// "Gradient Compression Supercharged High-Performance Data Parallel DNN Training", SOSP'21). The
// caller provides the times: plans of tensors ask the planner, tests use the published formulas.
// Pure; any thread, nothing blocks.
#pragma once

#include <cstdint>
#include <span>

namespace qccl {

// The time of a tensor that is cut into so many parts, in any unit that all times share.
struct PartsTime {
    uint32_t parts = 1;
    double time = 0;
};

// How much times have to differ to count as different; 1: any difference counts.
struct PartitionThresholds {
    // Among times that differ by less than this factor, the one with the fewest parts wins.
    double equal_time = 1;
    // A tensor is compressed if that makes it more than this many times as fast.
    double least_gain = 1;
};

struct Partitioning {
    bool is_compressed = false;
    PartsTime best = {}; // the decision
    // The best without and with compression. If there are no times with compression, both are
    // equal.
    PartsTime lossless = {}, compressed = {};
};

// Decides for one tensor. `lossless` has at least one time, `compressed` may have none. Both are
// ordered by the number of parts, ascending.
Partitioning choose_partitioning(std::span<const PartsTime> lossless,
                                 std::span<const PartsTime> compressed,
                                 const PartitionThresholds &manners = {});

} // namespace qccl
