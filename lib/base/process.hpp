// Reads what the system reports about a process and about the current boot. Any thread may call;
// blocks only to read files of /proc.
#pragma once

#include "base/result.hpp"

#include <cstdint>
#include <optional>
#include <string>

namespace qccl {

struct ProcessStatus {
    char state = '?';   // R, S, D, T, Z, ...
    uint64_t start = 0; // ticks since the boot; with the pid it identifies the process
    bool has_ended() const { return state == 'Z' || state == 'X'; }
    bool is_stopped() const { return state == 'T' || state == 't'; }
};

// Returns the status of a process; nothing if the process does not exist or is not visible.
std::optional<ProcessStatus> process_status(int64_t pid);
// Returns a text that differs between boots and between machines. Empty if the system does not
// tell, which is then so for every process on the machine. Returns system_error if only this
// process cannot read the text, because it has run short of a resource.
Result<std::string> boot_id();

} // namespace qccl
