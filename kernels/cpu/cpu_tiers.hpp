// The kernel tables of the CPU. lib/api takes the best of them; the tools and the tests take any.
// Any thread may call; no call blocks. generic_kernels and native_kernels are for cpu_tiers.cpp
// alone: they connect the translation units of the tiers.
#pragma once

#include "device/kernels.hpp"
#include "kernels/codec/reference.hpp"

#include <cstdint>
#include <span>

namespace qccl {

// Returns the best tier of this machine that `mask` allows (one bit per Tier); scalar if there is
// no other.
const Kernels &best_kernels(uint32_t mask = ~0U);
// Returns every tier that runs on this machine, scalar first.
std::span<const Kernels *const> available_kernels();

// ---- Translation units of the tiers

// Returns the tier that runs on every processor.
const Kernels &generic_kernels();
// Returns the tiers of this architecture's vector units, least capable first. An entry is null if
// this processor cannot run the tier.
std::span<const Kernels *const> native_kernels();

} // namespace qccl
