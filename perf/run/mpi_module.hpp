// The functions that qccl-perf needs of MPI, as a table that a separate module fills. qccl-perf
// itself therefore needs no MPI, and one build serves machines with and without MPI. One thread at
// a time calls the functions; all but `library` and `has` are collective or affect all processes.
#pragma once

#include "perf/report/measurement.hpp"

namespace qccl::perf {

struct MpiModule {
    static constexpr uint32_t current_abi = 3;

    uint32_t abi;
    // Joins the other processes; returns false if MPI fails.
    bool (*start)(uint32_t *rank_out, uint32_t *size_out);
    const char *(*library)(); // "Open MPI 4.1.4"
    // An all-gather over all processes; returns 0 on success, as qcclOob_t requires.
    int (*allgather)(const void *mine, void *all, size_t bytes, void *context);
    int (*barrier)();
    // Returns whether MPI supports this collective with this type, operation and count.
    bool (*has)(const Operation &operation);
    // Runs the call, or all calls of a group at once; send == nullptr means in place. Returns 0 on
    // success.
    int (*call)(const Operation &operation, const void *send, void *recv);
    void (*finish)();
    void (*abort)(int status); // ends all processes
};

// The only symbol that the module exports.
inline constexpr const char *mpi_module_symbol = "qccl_perf_mpi_module";
using MpiModuleFunction = const MpiModule *();

} // namespace qccl::perf
