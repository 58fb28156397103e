// Reads a file that a setting names. Any thread may call; blocks as long as the file system does.
#pragma once

#include "base/result.hpp"

#include <cstddef>
#include <string>

namespace qccl {

// Returns the content of a regular file of at most `most_bytes` bytes. The error is
// invalid_argument, or system_error if a read fails; it says why, without the path.
Result<std::string> read_regular_file(const std::string &path, size_t most_bytes);

} // namespace qccl
