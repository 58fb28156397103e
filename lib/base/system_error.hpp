// The error of a call to the operating system that has just failed, in a sentence. Knows not whose
// call it was.
#pragma once

#include "base/result.hpp"

#include <cerrno>
#include <cstring>

namespace qccl {

// "cannot open a pipe: Too many open files"; the reason is errno's.
inline Error cannot(const char *what) {
    return Error::make(Code::system_error, "cannot %s: %s", what, std::strerror(errno));
}

} // namespace qccl
