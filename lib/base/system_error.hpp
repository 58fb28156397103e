// Describes the failure of a system call in a sentence. Any thread may call; nothing blocks.
#pragma once

#include "base/result.hpp"

#include <cerrno>
#include <string>

namespace qccl {

// Returns strerror's text for an errno. For EMFILE it adds the limit that this process has reached:
// "Too many open files (the limit of open files, ulimit -n, is 1024)".
std::string describe_errno(int number);

// Returns system_error with a text such as "cannot open a pipe: No such device"; the reason is
// taken from errno.
Error cannot(const char *what);

} // namespace qccl
