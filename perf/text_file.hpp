// Reads a text that the user supplies into memory. Used by qccl-info. Blocks until the file has
// ended.
#pragma once

#include "base/result.hpp"

#include <cstdint>
#include <string>

namespace qccl::perf {

// Returns the content of the file; "-" is standard input. Fails with system_error if the file
// cannot be read, and with invalid_argument if it holds more than `most` bytes. `called` is the
// file's name in the error.
Result<std::string> read_text(const std::string &path, const std::string &called,
                              uint64_t most = uint64_t{1} << 30);

} // namespace qccl::perf
