// What a launcher has told this process by environment variables: which rank of how many it is, and
// where rank 0 can be met. One table of launchers. Pure: opens nothing and asks nobody.
#pragma once

#include "base/result.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace qccl {

inline constexpr std::string_view open_mpi = "mpirun"; // as a launcher

struct Placement {
    std::string_view launcher;
    const char *rank_variable = nullptr;
    const char *size_variable = nullptr;
    uint32_t rank = 0;
    uint32_t size = 0;
    std::string host;          // of rank 0; empty: only the process manager can tell
    std::string host_variable; // which said so
    uint16_t port = 0;
    std::string job;  // what its ranks know and those of other jobs do not; no secret
    int manager = -1; // descriptor of the process manager's wire (PMI-1)
};

// The first launcher of the table whose rank and size are both there, and them alone; nothing:
// there is none.
Result<std::optional<Placement>> find_launcher(const char *const *environment);

// `environment` as environ; a variable that is set and empty counts as not set. `port` is what
// somebody has chosen, else it follows from the launcher's variables. An error names what is
// missing.
Result<Placement> read_placement(const char *const *environment, std::optional<uint16_t> port);

// "node[01-03,07],gpu4" begins with node01, as Slurm writes lists. Nothing: no such list.
std::optional<std::string> first_of_node_list(const std::string &list);

} // namespace qccl
