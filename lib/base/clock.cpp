// Reads the processor's time stamp counter.
#include "base/clock.hpp"

#if defined(__x86_64__)
#include <x86intrin.h>
#elif !defined(__aarch64__) && !defined(__powerpc64__)
#include <chrono>
#endif

namespace qccl {

uint64_t ticks_now() {
#if defined(__x86_64__)
    return __rdtsc();
#elif defined(__aarch64__)
    uint64_t ticks;
    asm volatile("mrs %0, cntvct_el0" : "=r"(ticks));
    return ticks;
#elif defined(__powerpc64__)
    return __builtin_ppc_get_timebase();
#else
    const auto now = std::chrono::steady_clock::now().time_since_epoch();
    return static_cast<uint64_t>(std::chrono::nanoseconds(now).count());
#endif
}

} // namespace qccl
