// Keeps the ranks that run on this machine out of each other's way.
#pragma once

#include <cstdint>
#include <vector>

namespace qccl::perf {

// The processors that this thread may run on, those of a core beside each other and those of a
// package too. Empty where the system does not tell.
std::vector<uint32_t> processors_in_order();

// What rank `rank` of `ranks` has of the processors: as many as each other rank, give or take one;
// or one, which it shares, if there are more ranks than processors.
std::vector<uint32_t> share_of(const std::vector<uint32_t> &processors, uint32_t rank,
                               uint32_t ranks);

// From now on this thread, and what it starts, runs on these processors alone: all of them if there
// are none, or if the system refuses.
void stay_on(const std::vector<uint32_t> &processors);

} // namespace qccl::perf
