#include "base/spec_text.hpp"

namespace qccl {

Parted parted_at(std::string_view text, char mark) {
    const size_t at = text.find(mark);
    if (at == text.npos) return {text, {}, false};
    return {text.substr(0, at), text.substr(at + 1), true};
}

std::vector<std::string> split_specs(std::string_view texts) {
    std::vector<std::string> specs;
    for (Parted list{{}, texts, true}; list.is_marked;) {
        list = parted_at(list.behind, ',');
        const std::string_view item = list.before;
        const bool continues = item.find(':') == item.npos && item.find('=') != item.npos;
        if (continues && !specs.empty())
            specs.back()
                .append(specs.back().find(':') == std::string::npos ? ":" : ",")
                .append(item);
        else
            specs.emplace_back(item);
    }
    return specs;
}

} // namespace qccl
