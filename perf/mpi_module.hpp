// What qccl-perf asks of MPI, as a table that a separate module fills: so qccl-perf itself needs no
// MPI, and one build of it serves machines with and without.
#pragma once

#include "perf/operation.hpp"

namespace qccl::perf {

struct MpiModule {
    static constexpr uint32_t current_abi = 1;

    uint32_t abi;
    // Joins the other processes; false where MPI refuses.
    bool (*start)(uint32_t *rank_out, uint32_t *size_out);
    const char *(*library)(); // "Open MPI 4.1.4"
    // 0 if it went well, as qcclOob_t has it; over all processes.
    int (*allgather)(const void *mine, void *all, size_t bytes, void *context);
    int (*barrier)();
    // Whether MPI has this collective on this type, operation and count.
    bool (*has)(const Operation &operation);
    // Runs it; send == nullptr: in place. 0 if it went well.
    int (*call)(const Operation &operation, const void *send, void *recv);
    void (*finish)();
    void (*abort)(int status); // ends every process
};

// The one symbol of the module.
inline constexpr const char *mpi_module_symbol = "qccl_perf_mpi_module";
using MpiModuleFunction = const MpiModule *();

} // namespace qccl::perf
