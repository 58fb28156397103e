// The processor's clock, for times that are taken in every call. Any thread may read it; all
// threads of a process read the same clock.
#pragma once

#include <cstdint>

namespace qccl {

// Returns the time in the processor's own ticks. Reading it takes a few cycles; a system clock
// takes tens of ns.
uint64_t ticks_now();

} // namespace qccl
