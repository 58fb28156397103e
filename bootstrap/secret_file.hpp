// Reads a secret that the ranks of a job share through a file which other users may not read.
// join_environment() uses it. It reads a file.
#pragma once

#include "bootstrap/unique_id.hpp"

namespace qccl {

// Returns a hash of the file's content. Refuses with invalid_argument a path that is no regular
// file, a file that others may read or write, and one that is too short or too long to be a secret.
// Returns system_error if reading fails.
Result<Secret> read_secret_file(const std::string &path);

} // namespace qccl
