// What the tiers' translation units give each other; kernels.hpp is what others include.
#pragma once

#include "kernels/kernels.hpp"

namespace qccl {

const Kernels &generic_kernels();
// Those of this architecture's vector units, least first; null: not for this processor.
std::span<const Kernels *const> native_kernels();

} // namespace qccl
