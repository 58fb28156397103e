// Looks for a codec in a test's list of specs, which are words with keys ("int8:block=64").
#pragma once

#include <algorithm>
#include <string_view>

namespace qtest {

template <class Specs> bool has_spec_of(const Specs &specs, std::string_view word) {
    return std::ranges::any_of(
        specs, [word](std::string_view spec) { return spec.substr(0, spec.find(':')) == word; });
}

} // namespace qtest
