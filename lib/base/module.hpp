// Shared objects that are loaded where they are needed. Knows nothing of what is in them.
#pragma once

#include "base/result.hpp"

namespace qccl {

// The function `symbol` of a module that lies beside the library or where the system finds
// libraries; of a version of another ABI number it is the caller's business to keep off. The module
// stays loaded. An error says what is missing.
Result<void *> find_in_module(const char *file_name, const char *symbol);

} // namespace qccl
