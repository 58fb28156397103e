// Splits texts into lines, words and spec strings.
#include "base/spec_text.hpp"

#include <algorithm>

namespace qccl {

Parted parted_at(std::string_view text, char mark) {
    const size_t at = text.find(mark);
    if (at == text.npos) return {text, {}, false};
    return {text.substr(0, at), text.substr(at + 1), true};
}

std::string_view trimmed(std::string_view text) {
    constexpr std::string_view blanks = " \t\r";
    const size_t begin = text.find_first_not_of(blanks);
    if (begin == text.npos) return {};
    return text.substr(begin, text.find_last_not_of(blanks) + 1 - begin);
}

std::vector<std::string_view> words_of(std::string_view line, std::string_view separators) {
    std::vector<std::string_view> words;
    for (size_t begin = 0; (begin = line.find_first_not_of(separators, begin)) != line.npos;) {
        const size_t end = std::min(line.find_first_of(separators, begin), line.size());
        words.push_back(line.substr(begin, end - begin));
        begin = end;
    }
    return words;
}

std::string excerpt(std::string_view text) {
    constexpr size_t most_shown = 60;
    std::string shown(text.substr(0, most_shown));
    std::ranges::replace_if(
        shown, [](char c) { return c < ' ' || c > '~'; }, '?');
    return shown;
}

Done read_lines(std::string_view text, const TakeLine &take) {
    uint32_t number = 0;
    for (Parted lines{{}, text, true}; lines.is_marked;) {
        lines = parted_at(lines.behind, '\n');
        number++;
        const std::string_view line = trimmed(lines.before);
        if (line.empty() || line.starts_with('#')) continue;
        if (const Done done = take(line, number); !done)
            return Error::make(done.error().code, "line %u: %.400s", number, done.error().text);
    }
    return {};
}

std::vector<std::string> split_specs(std::string_view texts) {
    std::vector<std::string> specs;
    for (Parted list{{}, texts, true}; list.is_marked;) {
        list = parted_at(list.behind, ',');
        const std::string_view item = list.before;
        // A name ends at its ':', a key at its '='; another ':' may stand behind that.
        const size_t equals = item.find('=');
        const bool continues = equals != item.npos && equals < item.find(':');
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
