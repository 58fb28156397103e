// A second instance of a shared object that is loaded already, with state of its own: for libraries
// that do not work in a forked child where the parent has used them.
#pragma once

#include "base/result.hpp"

#include <span>
#include <string_view>

namespace qccl {

using Libraries = std::span<const std::string_view>; // as "libucs"

// Loads a copy of the shared object that `inside` lies in and of those libraries that are loaded,
// all of which refer to each other's copies. Returns the function `symbol` of the copy. The copies
// stay loaded. An error says what the system refuses.
Result<void *> find_in_private_copy(const void *inside, Libraries libraries, const char *symbol);

} // namespace qccl
