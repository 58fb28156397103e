// Which ranks' processes live. Empty where the ranks are threads of one process.
#pragma once

#include "base/result.hpp"
#include "base/file_descriptor.hpp"

#include <cstdint>
#include <poll.h>
#include <vector>

namespace qccl {

// One process's sign of life.
struct Lifeline {
    FileDescriptor shown; // to others: becomes readable or hangs up when the process ends
    FileDescriptor held;  // what the process keeps open for that; none where the kernel keeps count

    static Result<Lifeline> open();
    // For kernels, containers and tools without pidfds. A child that the process forks holds it,
    // too, and as long as that lives nobody sees the process die.
    static Result<Lifeline> open_pipe();
};

class Lifelines {
public:
    Lifelines() = default;
    // What each rank has shown, by rank, and what this one holds.
    Lifelines(std::vector<FileDescriptor> shown, FileDescriptor held);

    // Looks at all of them with one system call.
    void look();
    bool has_ended(uint32_t rank) const {
        return !polls_.empty() && (polls_[rank].revents & (POLLIN | POLLHUP)) != 0;
    }

private:
    std::vector<FileDescriptor> shown_;
    FileDescriptor held_;
    std::vector<pollfd> polls_;
};

} // namespace qccl
