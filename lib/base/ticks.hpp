// The processor's clock, for times that are taken in every call. Any thread may read it; all of a
// process read the same clock.
#pragma once

#include <cstdint>

namespace qccl {

// In ticks of the processor's own: a few cycles to read, where a system clock takes tens of ns.
uint64_t ticks_now();

} // namespace qccl
