// Reads the files of hwloc 2 and 3 (lstopo FILE.xml writes them), also those of versions that the
// library's own hwloc does not know. Used by the tools. Pure: the caller has the file's text. Any
// thread may call it.
#pragma once

#include "base/result.hpp"
#include "topology/graph.hpp"

#include <string_view>

namespace qccl {

inline constexpr size_t most_hwloc_xml_bytes = size_t{16} << 20;

// `source` names the file in errors. Vertex 0 is a network where the machine has a NIC. Returns
// invalid_argument with a sentence that names line, object and value where the text is no such file
// or one of its values cannot be. The graph has passed check().
Result<Graph> parse_hwloc_xml(std::string_view text, std::string_view source);

} // namespace qccl
