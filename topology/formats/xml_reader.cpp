// Parses the text with pugixml.
#include "topology/formats/xml_reader.hpp"

#include "base/text.hpp"

#include <algorithm>
#include <charconv>

namespace qccl {

namespace {

constexpr size_t most_depth = 64;

// Walks the elements in the order of the text and counts their depth, without recursion.
bool is_too_deep(pugi::xml_node document) {
    size_t depth = 0;
    for (pugi::xml_node node = document.first_child(); node;) {
        if (depth == most_depth) return true;
        if (node.first_child()) {
            node = node.first_child();
            depth++;
            continue;
        }
        while (node != document && !node.next_sibling()) {
            node = node.parent();
            depth--;
        }
        if (node == document) return false;
        node = node.next_sibling();
    }
    return false;
}

} // namespace

size_t XmlReader::line_of(ptrdiff_t offset) const {
    const auto end =
        std::clamp<size_t>(offset < 0 ? 0 : static_cast<size_t>(offset), 0, text_.size());
    const std::string_view before = text_.substr(0, end);
    return 1 + static_cast<size_t>(std::count(before.begin(), before.end(), '\n'));
}

Done XmlReader::read() {
    const pugi::xml_parse_result parsed = document_.load_buffer(
        text_.data(), text_.size(), pugi::parse_minimal | pugi::parse_escapes, pugi::encoding_utf8);
    if (!parsed)
        return invalid_argument("%.100s, line %zu: this is no XML: %s", source_.c_str(),
                                line_of(parsed.offset), parsed.description());
    if (is_too_deep(document_.root()))
        return invalid_argument("%.100s: elements nest deeper than %zu levels", source_.c_str(),
                                most_depth);
    return {};
}

Error XmlReader::refuse(pugi::xml_node element, const std::string &sentence) const {
    std::string which;
    for (const char *const attribute :
         {"busid", "pci_busid", "name", "dev", "numaid", "target", "type"})
        if (which.empty() && element.attribute(attribute))
            which = std::string(" ") + element.attribute(attribute).value();
    return invalid_argument("%.100s, line %zu: %.20s%.40s: %.280s", source_.c_str(),
                            line_of(element.offset_debug()), element.name(), which.c_str(),
                            sentence.c_str());
}

Error XmlReader::refuse_value(pugi::xml_node element, const char *attribute,
                              const std::string &expected) const {
    return refuse(element, std::string(attribute) + " is \"" +
                               std::string(element.attribute(attribute).value()).substr(0, 60) +
                               "\"; expected " + expected);
}

Result<std::optional<uint32_t>> XmlReader::count(pugi::xml_node element, const char *attribute,
                                                 uint32_t least, uint32_t most) const {
    if (!element.attribute(attribute)) return std::optional<uint32_t>();
    std::string_view value = element.attribute(attribute).value();
    const bool is_hexadecimal = value.starts_with("0x");
    if (is_hexadecimal) value.remove_prefix(2);
    const auto number = parse_number<uint32_t>(value, is_hexadecimal ? 16 : 10);
    if (!number || *number < least || *number > most)
        return refuse_value(element, attribute,
                            "a number from " + std::to_string(least) + " to " +
                                std::to_string(most));
    return number;
}

Result<std::optional<double>> XmlReader::measure(pugi::xml_node element, const char *attribute,
                                                 std::string_view unit) const {
    const std::string_view value = element.attribute(attribute).value();
    if (value.empty() || value.starts_with("Unknown")) return std::optional<double>();
    static constexpr double most = 1e15;
    double number = 0;
    const char *const end = value.data() + value.size();
    const auto [stop, problem] =
        std::from_chars(value.data(), end, number, std::chars_format::fixed);
    std::string_view rest(stop, static_cast<size_t>(end - stop));
    rest.remove_prefix(std::min(rest.find_first_not_of(' '), rest.size()));
    const bool has_unit = rest.empty() || (!unit.empty() && rest.starts_with(unit));
    if (problem != std::errc() || !has_unit || !(number > 0) || !(number <= most))
        return refuse_value(element, attribute,
                            "a number above 0" +
                                (unit.empty() ? std::string() : " in " + std::string(unit)));
    return std::optional(number);
}

} // namespace qccl
