// What the system tells about processes. Knows none of them.
#pragma once

#include "base/result.hpp"

#include <cstdint>
#include <optional>
#include <string>

namespace qccl {

struct ProcessStatus {
    char state = '?';   // R, S, D, T, Z, ...
    uint64_t start = 0; // in ticks since the boot: with the pid, which process it is
    bool has_ended() const { return state == 'Z' || state == 'X'; }
    bool is_stopped() const { return state == 'T' || state == 't'; }
};

// Nothing where there is no such process, or none to be seen.
std::optional<ProcessStatus> process_status(int64_t pid);
// Differs from boot to boot and machine to machine; empty where the system does not tell, which it
// then tells nobody on the machine. An error where this process has only run short of something.
Result<std::string> boot_id();

} // namespace qccl
