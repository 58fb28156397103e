// Passes file descriptors among the processes of one host: everyone gives two and gets everyone's.
// Rank 0 is the middle of the star; its socket has a random abstract name, so that nothing lies in
// any file system, and it listens only to processes of the same user that know the cookie. Knows
// not what the descriptors are.
#pragma once

#include "base/result.hpp"
#include "transport/fd_message.hpp"

#include <array>
#include <chrono>
#include <cstdint>
#include <vector>

namespace qccl {

// What every rank must know of rank 0 to reach it. Travels as bytes.
struct StarAddress {
    std::array<char, 24> name{};
    FdCookie cookie{};
};

// The middle, rank 0.
class FdStar {
public:
    // Listens from now on.
    static Result<FdStar> open();
    const StarAddress &address() const { return address_; }

    // Waits for all others and gives each of them everything. By rank; an error names a rank that
    // has not come by the deadline, or does not take what it is given, or says that no descriptor
    // is left. Strangers are turned away and delay nobody.
    Result<std::vector<FdPair>> serve(FdPair mine, uint32_t size, std::chrono::nanoseconds timeout);

private:
    FileDescriptor listener_;
    StarAddress address_;
};

// Every other rank. Opened before the others wait for it: later it needs no more descriptors to
// come.
class FdRay {
public:
    static Result<FdRay> open();
    Result<std::vector<FdPair>> join(const StarAddress &star, uint32_t rank, uint32_t size,
                                     FdPair mine, std::chrono::nanoseconds timeout);

private:
    FileDescriptor connection_;
};

} // namespace qccl
