// Descriptors that a forked child is not to have. While one holds a copy, the other end of a pipe
// or a connection does not see that the process has ended which it belongs to. (Programs that a
// child becomes lose it by O_CLOEXEC; children that only go on do not.)
#pragma once

#include "base/file_descriptor.hpp"

namespace qccl {

// For as long as it lives, the descriptor of that number is this process's alone: children find a
// file without bytes behind the number, which therefore names nothing else that they open.
class ForkShield {
public:
    ForkShield() = default;
    explicit ForkShield(const FileDescriptor &descriptor);
    ForkShield(ForkShield &&other) noexcept : number_(std::exchange(other.number_, none)) {}
    ForkShield &operator=(ForkShield &&other) noexcept {
        std::swap(number_, other.number_);
        return *this;
    }
    ~ForkShield();

private:
    static constexpr int none = -1;
    int number_ = none;
};

} // namespace qccl
