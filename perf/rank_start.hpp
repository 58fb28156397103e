// Starts the ranks of a run as processes or threads, or joins a run that a launcher has started,
// and gives each rank its communicator. Used by qccl-perf's benchmark and by calibration.
#pragma once

#include "perf/rank_group.hpp"
#include "perf/mpi_module.hpp"
#include "perf/perf_arguments.hpp"

#include <qccl/qccl.h>

#include <functional>

namespace qccl::perf {

// The functions of one run, on each of its processes.
struct RankWork {
    Launch launch = Launch::processes;
    uint32_t ranks = 2; // number of ranks if they are started here
    // Called when the number of ranks is known, before communicators are created; `is_first` is
    // true on the one process that writes results. If it fails on one process, the run ends on all.
    std::function<Done(uint32_t ranks, bool is_first)> prepare;
    std::function<qcclConfig_t(uint32_t rank)> config;
    // The work of a rank; returns its exit status. `mpi` is null if the ranks are not MPI's.
    std::function<Result<int>(RankGroup &rank_group, qcclComm_t comm, const MpiModule *mpi)> act;
    // Called when the run is over, with its exit status so far, on the process that writes results.
    std::function<int(int status)> finish = [](int status) { return status; };
};

// Prints the error to standard error; returns the exit status.
int complain(const Error &error);

// Runs the ranks and blocks until they are done; returns the exit status of this process.
int start_ranks(const RankWork &work);

} // namespace qccl::perf
