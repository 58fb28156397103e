// Creates communicators for the ranks of a RankGroup, in the way that a program with such ranks
// would. Used by qccl-perf. The functions block until all ranks have called.
#pragma once

#include "perf/rank_group.hpp"
#include "perf/mpi_module.hpp"
#include "perf/session.hpp"

#include <vector>

namespace qccl::perf {

// Returns a config without compression, which overrides the environment. A call may still name a
// codec.
qcclConfig_t lossless_config();

// For ranks that are processes: rank 0 makes the unique id, and the rank group distributes it.
Result<CommHandle> create_comm(RankGroup &rank_group, const qcclConfig_t &config);
// For ranks under MPI: bootstraps with MPI's all-gather.
Result<CommHandle> create_comm(RankGroup &rank_group, const MpiModule &mpi,
                               const qcclConfig_t &config);
// For ranks that are threads: creates all communicators at once, before the threads start.
// `devices` has one entry per rank.
Result<std::vector<CommHandle>> create_comms(const std::vector<const char *> &devices);

} // namespace qccl::perf
