// What this process learns about its job from outside, for join_environment(); the tools use it
// too. A launcher's environment variables give its rank, the number of ranks, and where rank 0
// listens; one table holds all launchers. A file that other users may not read gives a secret that
// the ranks of a job share. A process manager that speaks PMI version 1, such as MPICH's hydra,
// carries one text from rank 0 to all other ranks: lines of text, one request and one answer at a
// time. The functions for the variables are pure; read_secret_file() reads a file;
// spread_through_manager() blocks until its deadline at most. Any thread may call the functions.
#pragma once

#include "base/clock.hpp"
#include "base/result.hpp"
#include "bootstrap/rendezvous_protocol.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace qccl {

// ---- Launchers' variables

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

// ---- Secret file

// Returns a hash of the file's content. Refuses with invalid_argument a path that is no regular
// file, a file that others may read or write, and one that is too short or too long to be a secret.
// Returns system_error if reading fails.
Result<Secret> read_secret_file(const std::string &path);

// ---- Process manager

// Rank 0 gives the text, and every rank returns it; all ranks of the job must call. `wire` is the
// descriptor of the PMI connection. The call finalizes the PMI session, because a manager takes a
// process that has spoken and exits without that for dead. So a process can call it only once.
// Errors: system_error, timeout.
Result<std::string> spread_through_manager(int connection, uint32_t rank, const std::string &text,
                                           TimePoint deadline);

} // namespace qccl
