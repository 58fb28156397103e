// A second instance of a shared object that is loaded already, with state of its own: for libraries
// that do not work in a forked child where the parent has used them.
#pragma once

#include "base/result.hpp"

#include <span>
#include <string_view>

namespace qccl {

// As "libucs". All functions and variables of its state that the loader knows have "ucs_" in their
// names.
using Libraries = std::span<const std::string_view>;

// Loads a copy of the shared object that `inside` lies in and of those libraries that are loaded.
// The copies refer to each other, and for the rest to what the originals refer to. Returns the
// function `symbol` of the first copy. The copies stay loaded. An error says what the system
// refuses.
Result<void *> find_in_private_copy(const void *inside, Libraries libraries, const char *symbol);

} // namespace qccl
