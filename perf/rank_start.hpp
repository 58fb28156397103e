// Starts the ranks of a run as processes or threads, or takes part in one that a launcher has
// started, and gives each its communicator. Knows nothing of what they do.
#pragma once

#include "perf/crew.hpp"
#include "perf/mpi_module.hpp"
#include "perf/perf_arguments.hpp"

#include <qccl/qccl.h>

#include <functional>

namespace qccl::perf {

// One run, on each of its processes.
struct RankWork {
    Launch launch = Launch::processes;
    uint32_t ranks = 2; // that are started here
    // Once the number of ranks is known, before there are communicators; `is_first` on the one
    // process that writes. Where it fails on one process, the run ends on all.
    std::function<Done(uint32_t ranks, bool is_first)> prepare;
    std::function<qcclConfig_t(uint32_t rank)> config;
    // A rank's part, which gives its exit status. Without MPI's ranks `mpi` is null.
    std::function<Result<int>(Crew &crew, qcclComm_t comm, const MpiModule *mpi)> act;
    // When the run is over, with its exit status so far, on the process that writes.
    std::function<int(int status)> finish = [](int status) { return status; };
};

// Says on standard error what is wrong; returns the exit status.
int complain(const Error &error);

// The exit status of this process.
int start_ranks(const RankWork &work);

} // namespace qccl::perf
