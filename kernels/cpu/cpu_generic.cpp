// The kernel tier for processors without a vector unit that Highway supports. This file compiles
// the common source on 128-bit vectors that Highway emulates in plain C++.

// GCC before 12.3 generates wrong code for some emulated vectors when it vectorises them again (GCC
// bug 106322). This file is built with -fno-tree-vectorize, so Highway's check for that bug is
// overruled here.
#define HWY_BROKEN_EMU128 0
#define HWY_COMPILE_ONLY_EMU128
#include "kernels/cpu/cpu_tier-inl.hpp"

#include "kernels/cpu/cpu_tiers.hpp"

namespace qccl {

const Kernels &generic_kernels() { return N_EMU128::kernels; }

} // namespace qccl
