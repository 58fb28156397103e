// A topology as people name it on a command line: a file, or a line that describes machines. Used
// by the tools. Reads files and blocks while it does.
#pragma once

#include "base/result.hpp"
#include "topology/graph.hpp"

#include <string>

namespace qccl {

// What a file holds is recognised by its content: the text form of topology/graph_text, or XML of
// hwloc, NCCL or RCCL. What is the name of no file is read by topology/synthetic. Returns
// invalid_argument with a sentence where a file cannot be read, is larger than any topology or
// holds none, or where the text is neither.
Result<Graph> read_topology(const std::string &file_or_text);

// Of a file's content.
Result<Graph> parse_topology(std::string_view content, std::string_view source);

} // namespace qccl
