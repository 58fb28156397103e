// Lifelines over pidfds.
#include "transport/lifelines.hpp"

namespace qccl {

Lifelines::Lifelines(std::vector<FileDescriptor> pidfds) : pidfds_(std::move(pidfds)) {
    for (const FileDescriptor &pidfd : pidfds_) polls_.push_back({pidfd.number(), POLLIN, 0});
}

void Lifelines::look() {
    if (polls_.empty()) return;
    // On failure revents keeps what the last look found; the next look comes soon.
    poll(polls_.data(), polls_.size(), 0);
}

} // namespace qccl
