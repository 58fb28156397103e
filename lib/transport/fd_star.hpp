// Passes file descriptors among the processes of one host: everyone gives two and gets everyone's.
// The lowest rank is the middle of the star; its socket has a random abstract name, so that nothing
// lies in any file system, and it listens only to processes of the same user that know the cookie.
// Knows not what the descriptors are.
#pragma once

#include "base/prospect.hpp"
#include "base/result.hpp"
#include "transport/abstract_name.hpp"
#include "transport/fd_message.hpp"

#include <chrono>
#include <cstdint>
#include <span>
#include <vector>

namespace qccl {

// What every rank must know of the middle to reach it. Travels as bytes.
struct StarAddress {
    AbstractName name{};
    FdCookie cookie{};
};

// The middle, the first of the ranks of a host. `ranks` are theirs in the communicator, in whose
// order they give and get.
class FdStar {
public:
    // Listens from now on.
    static Result<FdStar> open();
    const StarAddress &address() const { return address_; }

    // Waits for all others and gives each of them everything. An error names a rank that
    // has not come by the deadline, or does not take what it is given, or says that no descriptor
    // is left. Strangers are turned away and delay nobody.
    Result<std::vector<FdPair>> serve(FdPair mine, std::span<const uint32_t> ranks,
                                      std::chrono::nanoseconds timeout,
                                      const Prospect &prospect = {});

private:
    FileDescriptor listener_;
    StarAddress address_;
};

// Every other rank; `place` is its own among them. Opened before the others wait for it: later it
// needs no more descriptors to come.
class FdRay {
public:
    static Result<FdRay> open();
    Result<std::vector<FdPair>> join(const StarAddress &star, uint32_t place,
                                     std::span<const uint32_t> ranks, FdPair mine,
                                     std::chrono::nanoseconds timeout);

private:
    FileDescriptor connection_;
};

} // namespace qccl
