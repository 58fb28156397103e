// What a launcher tells this process by environment variables: its rank, the number of ranks, and
// where rank 0 listens. One table holds all launchers. join_environment() and the tools use it.
// Pure functions: they open no files and no connections.
#pragma once

#include "base/result.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace qccl {

inline constexpr std::string_view open_mpi = "mpirun"; // LauncherInfo::launcher of Open MPI

struct LauncherInfo {
    std::string_view launcher;
    const char *rank_variable = nullptr;
    const char *size_variable = nullptr;
    uint32_t rank = 0;
    uint32_t size = 0;
    std::string host;          // of rank 0; empty: only the process manager knows it
    std::string host_variable; // the variable that gave the host
    uint16_t port = 0;
    std::string job;  // known to this job's ranks but not to those of other jobs; no secret
    int manager = -1; // descriptor of the PMI-1 connection to the process manager; -1: none
};

// Returns the first launcher of the table whose rank and size are both set, without host, port and
// job. Returns nothing if there is none, and invalid_argument if a value cannot be.
Result<std::optional<LauncherInfo>> find_launcher(const char *const *environment);

// `environment` has the form of environ; a variable that is set but empty counts as not set. `port`
// is the user's choice; without it the port follows from the launcher's variables. Returns
// invalid_argument with a sentence that names what is missing.
Result<LauncherInfo> read_launcher_info(const char *const *environment,
                                        std::optional<uint16_t> port);

// Returns the first node of a list in Slurm's notation: node01 for "node[01-03,07],gpu4". Returns
// nothing if the text is no such list.
std::optional<std::string> first_of_node_list(const std::string &list);

} // namespace qccl
