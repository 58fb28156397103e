// Gets unpredictable bytes from the kernel. Used for cookies, names and session numbers. Any thread
// may call.
#pragma once

#include "base/system_error.hpp"

#include <cstddef>
#include <span>

#include <sys/random.h>

namespace qccl {

// Fills `bytes`, at most 256, which the kernel gives whole or not at all. Returns system_error on
// failure.
inline Done draw_bytes(std::span<std::byte> bytes) {
    if (getrandom(bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size())) return {};
    return cannot("get random bytes");
}

} // namespace qccl
