// Assigns processors to the ranks that run on this machine, so that ranks do not disturb each
// other. Used when qccl-perf starts its own ranks.
#pragma once

#include <cstdint>
#include <vector>

namespace qccl::perf {

// Returns the processors that this thread may run on. Processors of one core are adjacent, and so
// are those of one package. Empty if the system does not tell.
std::vector<uint32_t> processors_in_order();

// Returns the processors of rank `rank` of `ranks`. All ranks get the same number, give or take
// one. If there are more ranks than processors, each rank gets one, which it shares.
std::vector<uint32_t> share_of(const std::vector<uint32_t> &processors, uint32_t rank,
                               uint32_t ranks);

// From now on this thread, and the threads and processes that it starts, run only on these
// processors. Changes nothing if the list is empty or the system refuses.
void stay_on(const std::vector<uint32_t> &processors);

} // namespace qccl::perf
