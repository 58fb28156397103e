// The error of a call to the operating system that has just failed, in a sentence. Any thread may
// call, nothing blocks.
#pragma once

#include "base/result.hpp"

#include <cerrno>
#include <string>

namespace qccl {

// What strerror says of an errno; of EMFILE also the limit that this process has reached:
// "Too many open files (the limit of open files, ulimit -n, is 1024)".
std::string describe_errno(int number);

// "cannot open a pipe: No such device"; the reason is errno's.
Error cannot(const char *what);

} // namespace qccl
