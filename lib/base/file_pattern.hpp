// File names that every process or rank of a job writes for itself, given once as a pattern for all
// of them. Used by the log and by traces. Any thread may call; nothing blocks.
#pragma once

#include "base/result.hpp"

#include <cstdint>
#include <optional>
#include <string>

namespace qccl {

// Returns this machine's name, or "localhost" if it has none.
std::string host_name();

// Returns the pattern with %h replaced by `host`, %p by this process's number, %r by `rank` and %%
// by a percent. Every other letter behind a % is refused, and so is %r if `rank` is empty: returns
// invalid_argument with a sentence that begins with `what` and the pattern in quotes, and lists
// what is possible.
Result<std::string> expand_file_pattern(const char *what, const std::string &pattern,
                                        const std::string &host,
                                        std::optional<uint32_t> rank = std::nullopt);

// Returns the path of the file that `rank` writes. If the pattern names the same file for several
// ranks, -%r is inserted before its extension. Errors are those of expand_file_pattern; the name of
// a folder is refused with invalid_argument, too.
Result<std::string> rank_file_path(const char *what, const std::string &pattern, uint32_t rank,
                                   uint32_t ranks);

// Returns `path` with `text` inserted before its extension, or appended if it has none: "a/b.json"
// and "-3" give "a/b-3.json".
std::string with_suffix(const std::string &path, const std::string &text);

} // namespace qccl
