// Lines of words, and spec strings, "name:key=value,key=value", taken apart, and lists of them.
// Knows no names and no keys.
#pragma once

#include "base/result.hpp"

#include <cstdint>
#include <functional>
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

// Without blanks at its ends.
std::string_view trimmed(std::string_view text);
// What stands between separators, of which any number may follow each other.
std::vector<std::string_view> words_of(std::string_view line, std::string_view separators = " \t");
// The beginning of a text from outside as a message can show it, whatever a damaged file holds.
std::string excerpt(std::string_view text);

// Gives each line that is neither blank nor a comment, which begins with a '#', to `take`, without
// blanks at its ends; lines are numbered from 1 on. The first error ends it, and names the line.
using TakeLine = std::function<Done(std::string_view line, uint32_t number)>;
Done read_lines(std::string_view text, const TakeLine &take);

// Specs between commas as they were written; an item with a key and no name continues the one
// before it.
std::vector<std::string> split_specs(std::string_view texts);

} // namespace qccl
