// The error for a name that is not one of a few possible ones, in the same words everywhere. Used
// by the parsers of codecs, algorithms, plan files and devices. Pure; any thread may call.
#pragma once

#include "base/result.hpp"

#include <string>
#include <string_view>
#include <vector>

namespace qccl {

using Names = std::vector<std::string_view>;

// Returns the names in the rows of a table.
template <class Table> Names names_of(const Table &table) {
    Names names;
    for (const auto &row : table) names.push_back(row.name);
    return names;
}

// Returns the names separated by commas: "ring, direct, oneshot".
std::string listed(const Names &names);

// Returns invalid_argument with a sentence such as `algorithm is "star"; possible are ring, direct,
// oneshot`. `what` names the thing that was read. At most 40 characters of `text` are shown, so
// that the rest of the sentence fits.
Error no_choice(std::string_view what, std::string_view text, const Names &possible);

} // namespace qccl
