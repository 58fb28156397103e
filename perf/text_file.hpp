// Texts that a person hands to a tool, whole in memory.
#pragma once

#include "base/result.hpp"

#include <cstdint>
#include <string>

namespace qccl::perf {

// What the file holds; "-" is standard input. An error says why it cannot be read, system_error, or
// that it holds more than `most` bytes, invalid_argument; `called` names it there.
Result<std::string> read_text(const std::string &path, const std::string &called,
                              uint64_t most = uint64_t{1} << 30);

} // namespace qccl::perf
