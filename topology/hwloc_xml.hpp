// Reads the files of hwloc 2 and 3 (`lstopo FILE.xml` writes them), also those of versions that the
// library's own hwloc does not know. The tools use it. Pure: the caller passes the file's text. Any
// thread may call it.
#pragma once

#include "base/result.hpp"
#include "topology/graph.hpp"

#include <string_view>

namespace qccl {

inline constexpr size_t most_hwloc_xml_bytes = size_t{16} << 20;

// `source` names the file in errors. Returns a graph that has passed check(); vertex 0 is a network
// if the machine has a NIC. Returns invalid_argument with a sentence that names line, object and
// value if the text is no such file or if a value cannot be.
Result<Graph> parse_hwloc_xml(std::string_view text, std::string_view source);

} // namespace qccl
