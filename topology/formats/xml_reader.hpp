// Reads attributes of XML elements as numbers, and makes errors that name the line. The readers of
// topology files use it. It keeps a view of the text, which must outlive it; one thread at a time
// may use a reader.
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

    // Parses the text. Refuses with invalid_argument text that is no XML or nests deeper than any
    // topology.
    Done read();
    const pugi::xml_document &document() const { return document_; }

    // Returns the error "FILE, line 7: pci 0000:1b:00.0: SENTENCE", with the element's busid, name
    // or dev.
    Error refuse(pugi::xml_node element, const std::string &sentence) const;

    // Returns a whole number from `least` to `most`, also hexadecimal with 0x; nothing if the
    // element does not have the attribute.
    Result<std::optional<uint32_t>> count(pugi::xml_node element, const char *attribute,
                                          uint32_t least, uint32_t most) const;
    // Returns the number that the attribute begins with, which must be above 0; what follows the
    // number must be `unit` or begin with it. Returns nothing if the attribute is missing, empty or
    // unknown.
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
