// Reads a topology as users name it on a command line (a file, or a line that describes machines),
// and places the ranks of a job on it. The tools use it. read_topology() reads files and blocks
// while it does; the other functions are pure. Any thread may call them.
#pragma once

#include "base/result.hpp"
#include "topology/graph.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace qccl {

// ---- Reading

// The content of a file decides how it is read: as the text form of topology/graph_text, or as XML
// of hwloc, NCCL or RCCL. Text that is the name of no file is read by topology/synthetic. Returns
// invalid_argument with a sentence if a file cannot be read, is larger than any topology or holds
// none, or if the text is neither.
Result<Graph> read_topology(const std::string &file_or_text);

// Parses the content of a file. `source` names the file in errors.
Result<Graph> parse_topology(std::string_view content, std::string_view source);

// ---- Places of the ranks

// Returns the vertex of each rank, by rank. On GPUs there is one rank each, in the order of the
// GPUs' numbers, and machine after machine is filled. Without GPUs each machine gets a block of
// ranks of the same size, or one less, and deals it out over its NUMA nodes. `ranks` 0: one rank
// for each GPU, or without GPUs for each NUMA node. Returns invalid_argument if there are more
// ranks than GPUs.
Result<std::vector<uint32_t>> rank_places(const Graph &graph, uint32_t ranks);

} // namespace qccl
