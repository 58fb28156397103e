// Checks that printed output has been written, because a full disk must not count as success. Used
// by all tools.
#pragma once

#include "base/result.hpp"

#include <cstdio>

namespace qccl::perf {

// Fails with the reason if anything printed is lost. The caller must report the error, because the
// stream's error state is cleared.
Done flush(std::FILE *out);

// The last call of a process on standard output. Returns `status`. If output is lost, prints that
// on standard error in the name of `program` and returns a failure status.
int end_output(const char *program, int status);

} // namespace qccl::perf
