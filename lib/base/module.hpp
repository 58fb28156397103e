// Loads shared objects at the time they are needed: the network module and the GPU modules. Any
// thread may call; blocks while the loader reads files.
#pragma once

#include "base/result.hpp"

#include <cstdint>

namespace qccl {

// Returns the function `symbol` of a module that lies beside the library or where the system finds
// libraries. The module stays loaded. The error (system_error) says what is missing; if the module
// does not exist, its `got` is ENOENT.
Result<void *> find_in_module(const char *file_name, const char *symbol);
// Refuses (system_error) a module that was built for another version than the library's. The caller
// checks `built_for`, the version that the module reports, before it uses anything else of the
// module.
Done check_abi(const char *file_name, uint32_t built_for, uint32_t needed);

} // namespace qccl
