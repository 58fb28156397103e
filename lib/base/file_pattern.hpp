// Names of files that every process or rank of a job writes for itself, given once for all of them.
// Used by the log and by traces; any thread may call, nothing blocks.
#pragma once

#include "base/result.hpp"

#include <cstdint>
#include <optional>
#include <string>

namespace qccl {

// This machine's name; "localhost" where it has none.
std::string host_name();

// The pattern with %h replaced by `host`, %p by this process's number, %r by `rank` and %% by a
// percent. Without a rank %r is refused as any other letter is: invalid_argument, a sentence that
// begins with `what`, the pattern in quotes, and says what is possible.
Result<std::string> expand_file_pattern(const char *what, const std::string &pattern,
                                        const std::string &host,
                                        std::optional<uint32_t> rank = std::nullopt);

// Of a file that each rank writes: a pattern whose name would be the same for several ranks gets
// -%r before its extension. Errors as above, and for the name of a folder.
Result<std::string> rank_file_path(const char *what, const std::string &pattern, uint32_t rank,
                                   uint32_t ranks);

// `path` with `text` before its extension, or at its end where it has none: "a/b.json" and "-3"
// give "a/b-3.json".
std::string with_suffix(const std::string &path, const std::string &text);

} // namespace qccl
