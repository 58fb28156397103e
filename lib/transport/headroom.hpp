// Whether the system's limits leave a process what a network between hosts takes. UCX does not say
// so itself: where it runs short of descriptors or memory it ends the process, or goes silent.
#pragma once

#include "base/result.hpp"

#include <cstdint>
#include <span>

namespace qccl {

// To be asked by `rank` before UCX is loaded, and again before it starts; `hosts` says for each
// rank which it is on. The error names the limit and what it has to be at least. Limits that cannot
// be read count as none.
Done check_headroom(std::span<const uint32_t> hosts, uint32_t rank);

} // namespace qccl
