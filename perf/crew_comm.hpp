// A communicator for the ranks of a crew, made the way that a program of their kind would make it.
#pragma once

#include "perf/crew.hpp"
#include "perf/mpi_module.hpp"
#include "perf/session.hpp"

#include <vector>

namespace qccl::perf {

// Lossless unless a call says otherwise, whatever the environment says.
qcclConfig_t lossless_config();

// Ranks are processes: rank 0 makes the unique id, the crew carries it.
Result<CommHandle> create_comm(Crew &crew, const qcclConfig_t &config);
// MPI's all-gather brings the ranks together.
Result<CommHandle> create_comm(Crew &crew, const MpiModule &mpi, const qcclConfig_t &config);
// Ranks are threads: all communicators at once, before the threads start. `devices` by rank.
Result<std::vector<CommHandle>> create_comms(const std::vector<const char *> &devices);

} // namespace qccl::perf
