// A file descriptor that its owner closes in the destructor.
#pragma once

#include <unistd.h>
#include <utility>

namespace qccl {

class FileDescriptor {
public:
    FileDescriptor() = default;
    explicit FileDescriptor(int number) : number_(number) {}
    FileDescriptor(FileDescriptor &&other) noexcept : number_(std::exchange(other.number_, none)) {}
    FileDescriptor &operator=(FileDescriptor &&other) noexcept {
        std::swap(number_, other.number_);
        return *this;
    }
    ~FileDescriptor() {
        if (is_open()) close(number_);
    }

    bool is_open() const { return number_ >= 0; }
    int number() const { return number_; }
    // Hands the descriptor to the caller, who must close it.
    int release() { return std::exchange(number_, none); }

private:
    static constexpr int none = -1;
    int number_ = none;
};

} // namespace qccl
