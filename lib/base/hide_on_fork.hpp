// Withholds file descriptors from forked children. While a child holds a copy of a descriptor, the
// peer at the other end of a pipe or connection does not see that the process has ended. (A child
// that calls exec loses the descriptor by O_CLOEXEC; a child that only continues does not.) Used by
// the liveness monitor; any thread may call.
#pragma once

#include "base/file_descriptor.hpp"

namespace qccl {

// As long as this object lives, forked children do not inherit the descriptor: in a child its
// number refers to /dev/null, so that no file that the child opens gets the number.
class HideOnFork {
public:
    HideOnFork() = default;
    explicit HideOnFork(const FileDescriptor &descriptor);
    HideOnFork(HideOnFork &&other) noexcept : number_(std::exchange(other.number_, none)) {}
    HideOnFork &operator=(HideOnFork &&other) noexcept {
        std::swap(number_, other.number_);
        return *this;
    }
    ~HideOnFork();

private:
    static constexpr int none = -1;
    int number_ = none;
};

} // namespace qccl
