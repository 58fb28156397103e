// Which of a few names somebody meant who wrote another. Knows none of the names.
#pragma once

#include "base/choice.hpp"

#include <cstddef>
#include <optional>
#include <string_view>

namespace qccl {

// The name that the fewest insertions, deletions and substitutions make of `text`; nothing where
// that takes more than `most_edits`.
std::optional<std::string_view> nearest(std::string_view text, const Names &names,
                                        size_t most_edits);

} // namespace qccl
