// Tells whether the process of another rank on this host has ended. The messenger asks while a
// receive waits for a rank with which no link exists yet: no QCCL call is under way with it then,
// which would notice.
//
// Any thread may use it. It reads /proc and does not block.
#pragma once

#include <array>
#include <cstdint>

namespace qccl_torch {

// Travels as bytes.
struct ProcessIdentity {
    std::array<char, 40> host{}; // the boot's random id and the namespace of process numbers
    uint64_t process = 0;
    uint64_t start_time = 0; // tells a process from a later one with the same number

    static ProcessIdentity of_this_process();
    // True if the process ran on this host and has ended. False for processes of other hosts.
    bool has_ended() const;
};

} // namespace qccl_torch
