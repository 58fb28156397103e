// Which ranks' processes live. Empty where the ranks are threads of one process.
#pragma once

#include "transport/file_descriptor.hpp"

#include <cstdint>
#include <poll.h>
#include <vector>

namespace qccl {

class Lifelines {
public:
    Lifelines() = default;
    // By rank; a pidfd becomes readable when its process has ended.
    explicit Lifelines(std::vector<FileDescriptor> pidfds);

    // Looks at all of them with one system call.
    void look();
    bool has_ended(uint32_t rank) const {
        return !polls_.empty() && (polls_[rank].revents & POLLIN) != 0;
    }

private:
    std::vector<FileDescriptor> pidfds_;
    std::vector<pollfd> polls_;
};

} // namespace qccl
