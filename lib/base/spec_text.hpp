// Splits text into lines and words, and lists of spec strings ("name:key=value,key=value") into
// their parts. Used by the parsers of codecs, algorithms and plan files. Pure; any thread may call.
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
    bool is_marked; // false: there was no mark, and `before` is the whole text
};

// Splits the text at the first `mark`.
Parted parted_at(std::string_view text, char mark);

// Returns the text without the blanks at its ends.
std::string_view trimmed(std::string_view text);
// Returns the words between separators; several separators in a row count as one.
std::vector<std::string_view> words_of(std::string_view line, std::string_view separators = " \t");
// Returns the beginning of a text from outside with all unprintable characters replaced, so that a
// message can show it.
std::string excerpt(std::string_view text);

// Calls `take` for each line, without the blanks at its ends; lines are numbered from 1. Blank
// lines and comments (lines that begin with '#') are skipped. The first error ends the loop and is
// returned with the line's number.
using TakeLine = std::function<Done(std::string_view line, uint32_t number)>;
Done read_lines(std::string_view text, const TakeLine &take);

// Splits a list at its commas into specs as they were written. An item with a key and no name
// continues the spec before it.
std::vector<std::string> split_specs(std::string_view texts);

} // namespace qccl
