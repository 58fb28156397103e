// Attributes of XML elements as numbers, and errors that name the line. Used by the readers of
// topology files. Pure.
#pragma once

#include "base/result.hpp"

#include <optional>
#include <string>
#include <string_view>

#include <pugixml.hpp>

namespace qccl {

class XmlReader {
public:
    XmlReader(std::string_view text, std::string_view source) : text_(text), source_(source) {}

    // Refuses what is no XML or nests deeper than any topology.
    Done read();
    const pugi::xml_document &document() const { return document_; }

    // "FILE, line 7: pci 0000:1b:00.0: SENTENCE", with the element's busid, name or dev.
    Error refuse(pugi::xml_node element, const std::string &sentence) const;

    // A whole number, also hexadecimal with 0x. Nothing: the element does not have the attribute.
    Result<std::optional<uint32_t>> count(pugi::xml_node element, const char *attribute,
                                          uint32_t least, uint32_t most) const;
    // The number that the attribute begins with, above 0; what follows it must be `unit` or begin
    // with it. Nothing: there is none, or it is empty or unknown.
    Result<std::optional<double>> measure(pugi::xml_node element, const char *attribute,
                                          std::string_view unit) const;

private:
    size_t line_of(ptrdiff_t offset) const;
    Error refuse_value(pugi::xml_node element, const char *attribute,
                       const std::string &expected) const;

    std::string_view text_;
    std::string source_;
    pugi::xml_document document_;
};

} // namespace qccl
