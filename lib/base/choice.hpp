// What is said to somebody who wrote a name where one of a few was expected, in the same words
// everywhere. Knows none of the names.
#pragma once

#include "base/result.hpp"

#include <string>
#include <string_view>
#include <vector>

namespace qccl {

using Names = std::vector<std::string_view>;

// Of the rows of a table.
template <class Table> Names names_of(const Table &table) {
    Names names;
    for (const auto &row : table) names.push_back(row.name);
    return names;
}

// "ring, direct, oneshot"
std::string listed(const Names &names);

// `algorithm is "star"; possible are ring, direct, oneshot`, with that much of the text that the
// rest of the sentence fits.
Error no_choice(std::string_view what, std::string_view text, const Names &possible);

} // namespace qccl
