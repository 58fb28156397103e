// Names the implementations.
#include "api/assemble.hpp"

#include "kernels/cpu/cpu_tiers.hpp"
#include "topology/sources/topology_source.hpp"

namespace qccl {

Implementations implementations() {
    return {.best_kernels = best_kernels, .topology = &topology_source()};
}

} // namespace qccl
