// Bytes that nobody can guess, from the kernel.
#pragma once

#include "base/system_error.hpp"

#include <cstddef>
#include <span>

#include <sys/random.h>

namespace qccl {

// Up to 256, which the kernel gives whole or not at all.
inline Done draw_bytes(std::span<std::byte> bytes) {
    if (getrandom(bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size())) return {};
    return cannot("get random bytes");
}

} // namespace qccl
