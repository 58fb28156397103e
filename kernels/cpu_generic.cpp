// The tier for processors that Highway has no vectors for: the same source on vectors of 128 bits
// that it emulates with plain C++.

// GCC before 12.3 turns some emulated vectors into wrong code where it vectorises them again
// (its bug 106322), so this file is built with -fno-tree-vectorize and the check is overruled.
#define HWY_BROKEN_EMU128 0
#define HWY_COMPILE_ONLY_EMU128
#include "kernels/cpu_tier-inl.hpp"

#include "kernels/cpu.hpp"

namespace qccl {

const Kernels &generic_kernels() { return N_EMU128::kernels; }

} // namespace qccl
