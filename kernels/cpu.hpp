// Connects the translation units of the CPU tiers: each returns its kernel tables to cpu.cpp. Other
// code includes kernels.hpp instead.
#pragma once

#include "kernels/kernels.hpp"

namespace qccl {

// Returns the tier that runs on every processor.
const Kernels &generic_kernels();
// Returns the tiers of this architecture's vector units, least capable first. An entry is null if
// this processor cannot run the tier.
std::span<const Kernels *const> native_kernels();

} // namespace qccl
