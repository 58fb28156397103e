// Reads a file that a setting names. Any thread; blocks as long as the file system does.
#pragma once

#include "base/result.hpp"

#include <cstddef>
#include <string>

namespace qccl {

// The content of a regular file of at most `most_bytes` bytes. An error (invalid_argument; of a
// read that fails system_error) says why not, without the path.
Result<std::string> read_regular_file(const std::string &path, size_t most_bytes);

} // namespace qccl
