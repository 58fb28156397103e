// Reads a topology as users name it on a command line: a file, or a line that describes machines.
// The tools use it. It reads files and blocks while it does.
#pragma once

#include "base/result.hpp"
#include "topology/graph.hpp"

#include <string>

namespace qccl {

// The content of a file decides how it is read: as the text form of topology/graph_text, or as XML
// of hwloc, NCCL or RCCL. Text that is the name of no file is read by topology/synthetic. Returns
// invalid_argument with a sentence if a file cannot be read, is larger than any topology or holds
// none, or if the text is neither.
Result<Graph> read_topology(const std::string &file_or_text);

// Parses the content of a file. `source` names the file in errors.
Result<Graph> parse_topology(std::string_view content, std::string_view source);

} // namespace qccl
