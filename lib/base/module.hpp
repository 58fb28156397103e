// Loads shared objects at the time they are needed: the network module, the GPU modules and NVML.
// Also loads a second instance of a shared object that is already loaded, with its own state, for
// libraries that do not work in a forked child after the parent has used them (UCX). Any thread may
// call; blocks while the loader reads files.
#pragma once

#include "base/result.hpp"

#include <cstdint>
#include <span>
#include <string_view>

namespace qccl {

// ---- Modules of the library

// Returns the function `symbol` of a module that lies beside the library (or beside the program
// that holds the library), where the system finds libraries, or where the build installs it. The
// module stays loaded. The error (system_error) says what is missing; if the module does not exist,
// its `got` is ENOENT.
Result<void *> find_in_module(const char *file_name, const char *symbol);
// Refuses (system_error) a module that was built for another version than the library's. The caller
// checks `built_for`, the version that the module reports, before it uses anything else of the
// module.
Done check_abi(const char *file_name, uint32_t built_for, uint32_t needed);

// ---- A second instance of a library

// Names such as "libucs". All functions and variables of such a library's state that the loader
// knows have its prefix ("ucs_") in their names.
using Libraries = std::span<const std::string_view>;

// Loads a copy of the shared object that contains the address `inside`, and copies of those of
// `libraries` that are loaded. The copies refer to each other, and otherwise to the same objects as
// the originals. Returns the function `symbol` of the first copy. The copies stay loaded. The error
// says what the system refuses.
Result<void *> find_in_private_copy(const void *inside, Libraries libraries, const char *symbol);

} // namespace qccl
