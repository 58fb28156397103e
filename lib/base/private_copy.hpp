// Loads a second instance of a shared object that is already loaded, with its own state: for
// libraries that do not work in a forked child after the parent has used them. Used for UCX. Blocks
// while files are read and loaded.
#pragma once

#include "base/result.hpp"

#include <span>
#include <string_view>

namespace qccl {

// Names such as "libucs". All functions and variables of such a library's state that the loader
// knows have its prefix ("ucs_") in their names.
using Libraries = std::span<const std::string_view>;

// Loads a copy of the shared object that contains the address `inside`, and copies of those of
// `libraries` that are loaded. The copies refer to each other, and otherwise to the same objects as
// the originals. Returns the function `symbol` of the first copy. The copies stay loaded. The error
// says what the system refuses.
Result<void *> find_in_private_copy(const void *inside, Libraries libraries, const char *symbol);

} // namespace qccl
