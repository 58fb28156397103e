// Lifelines over pidfds, or else over pipes.
#include "transport/lifelines.hpp"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/syscall.h>

namespace qccl {

Result<Lifeline> Lifeline::open() {
    Lifeline own;
    own.shown = FileDescriptor(static_cast<int>(syscall(SYS_pidfd_open, getpid(), 0)));
    if (own.shown.is_open()) return own;
    // Older than Linux 5.3, or forbidden by a container's filter.
    if (errno == ENOSYS || errno == EPERM) return open_pipe();
    return Error::make(Code::system_error, "cannot open a pidfd: %s", std::strerror(errno));
}

Result<Lifeline> Lifeline::open_pipe() {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0)
        return Error::make(Code::system_error, "cannot open a pipe: %s", std::strerror(errno));
    return Lifeline{FileDescriptor(ends[0]), FileDescriptor(ends[1])};
}

Lifelines::Lifelines(std::vector<FileDescriptor> shown, FileDescriptor held)
    : shown_(std::move(shown)), held_(std::move(held)) {
    for (const FileDescriptor &line : shown_) polls_.push_back({line.number(), POLLIN, 0});
}

void Lifelines::look() {
    if (polls_.empty()) return;
    // On failure revents keeps what the last look found; the next look comes soon.
    poll(polls_.data(), polls_.size(), 0);
}

} // namespace qccl
