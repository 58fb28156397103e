// Formats lists of names and the error for a name that is not in the list.
#include "base/choice.hpp"

#include <algorithm>

namespace qccl {

std::string listed(const Names &names) {
    std::string list;
    for (const std::string_view name : names) list.append(list.empty() ? "" : ", ").append(name);
    return list;
}

Error no_choice(std::string_view what, std::string_view text, const Names &possible) {
    static constexpr size_t longest_shown = 40;
    return Error::make(Code::invalid_argument, "%.*s is \"%.*s\"; possible %s %s",
                       static_cast<int>(what.size()), what.data(),
                       static_cast<int>(std::min(text.size(), longest_shown)), text.data(),
                       possible.size() == 1 ? "is" : "are", listed(possible).c_str());
}

} // namespace qccl
