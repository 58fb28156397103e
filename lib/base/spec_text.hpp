// Spec strings, "name:key=value,key=value", taken apart, and lists of them. Knows no names and no
// keys.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace qccl {

struct Parted {
    std::string_view before, behind;
    bool is_marked; // else all of it stands before
};

// By the first `mark`.
Parted parted_at(std::string_view text, char mark);

// Specs between commas as they were written; an item with a key and no name continues the one
// before it.
std::vector<std::string> split_specs(std::string_view texts);

} // namespace qccl
