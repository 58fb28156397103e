// Finds the name that a misspelt one probably means. Used for unknown settings. Pure; any thread
// may call.
#pragma once

#include "base/choice.hpp"

#include <cstddef>
#include <optional>
#include <string_view>

namespace qccl {

// Returns the name with the smallest edit distance (insertions, deletions and substitutions) to
// `text`; nothing if that distance exceeds `most_edits`.
std::optional<std::string_view> nearest(std::string_view text, const Names &names,
                                        size_t most_edits);

} // namespace qccl
