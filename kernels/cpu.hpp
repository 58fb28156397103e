// What the tiers' translation units give each other; kernels.hpp is what others include.
#pragma once

#include "kernels/kernels.hpp"

namespace qccl {

struct TierKernels {
    Tier tier = Tier::scalar;
    const Kernels *kernels = nullptr; // null: not built, or not for this processor
};

const Kernels &generic_kernels();
// The tiers of this architecture's vector units, least first.
std::span<const TierKernels> native_kernels();

} // namespace qccl
