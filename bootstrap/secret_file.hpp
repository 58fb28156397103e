// A secret that the ranks of a job share by a file: what nobody else may read.
#pragma once

#include "bootstrap/unique_id.hpp"

namespace qccl {

// Refuses what is no file, what others may read or write, and what is too short to be a secret.
Result<Secret> read_secret_file(const std::string &path);

} // namespace qccl
