// Whether what was printed has arrived: a full disk is not a success.
#pragma once

#include "base/result.hpp"

#include <cstdio>

namespace qccl::perf {

// Fails with the reason where what was printed is lost; whoever is told so has to pass it on, the
// stream forgets it.
Done flush(std::FILE *out);

// The last that a process does with standard output. Returns `status`, or a failure's where output
// is lost, which is said on standard error in `program`'s name.
int end_output(const char *program, int status);

} // namespace qccl::perf
