// Parts and links of a graph in a few words, for the tree, the matrix and the picture. Pure.
#pragma once

#include "topology/graph.hpp"

#include <cstdint>
#include <string>
#include <string_view>

namespace qccl {

// Without control characters, and without bytes that are no UTF-8, each of which becomes a '?':
// names come from files.
std::string printable(std::string_view text);

// "GPU 3", "NUMA 0", "node7".
std::string part_label(const Vertex &vertex);

// "450", "62.4", "0.125"; "?" where it is unknown.
std::string rate_number(double bytes_per_ns);
// "pcie 63 GB/s x16", "tcp" where the rate is unknown.
std::string link_text(const Link &link);

// The link to the part that contains this one; no link: UINT32_MAX.
inline constexpr uint32_t no_link = UINT32_MAX;
uint32_t link_to_parent(const Graph &graph, uint32_t vertex);

} // namespace qccl
