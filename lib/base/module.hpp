// Shared objects that are loaded where they are needed. Knows nothing of what is in them.
#pragma once

#include "base/result.hpp"

#include <cstdint>

namespace qccl {

// The function `symbol` of a module that lies beside the library or where the system finds
// libraries. The module stays loaded. An error says what is missing.
Result<void *> find_in_module(const char *file_name, const char *symbol);
// Of what that function gives, before anything else of it is touched: a module may be of another
// version than the library.
Done check_abi(const char *file_name, uint32_t built_for, uint32_t needed);

} // namespace qccl
