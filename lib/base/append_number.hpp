// Appends numbers to a text in the shortest form that reads back to the same value, independent of
// the locale. Pure; any thread may call.
#pragma once

#include <array>
#include <charconv>
#include <string>

namespace qccl {

template <class Number, class... Base>
void append_number(std::string &text, Number value, Base... base) {
    std::array<char, 32> digits;
    const auto end = std::to_chars(digits.begin(), digits.end(), value, base...).ptr;
    text.append(digits.begin(), end);
}

} // namespace qccl
