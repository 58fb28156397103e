// Short texts for the parts and links of a graph, for the tree, the matrix and the picture. Pure;
// any thread may call it.
#pragma once

#include "topology/graph.hpp"

#include <cstdint>
#include <string>
#include <string_view>

namespace qccl {

// Replaces control characters, and bytes that are no UTF-8, by a '?' each: names come from files.
std::string printable(std::string_view text);

// Returns the part's name for display: "GPU 3", "NUMA 0", "node7".
std::string part_label(const Vertex &vertex);

// Returns the rate in GB/s: "450", "62.4", "0.125"; "?" if it is unknown.
std::string rate_number(double bytes_per_ns);
// Returns class, rate and width: "pcie 63 GB/s x16"; "tcp" if the rate is unknown.
std::string link_text(const Link &link);

// The link to the part that contains this one; no_link if there is none.
inline constexpr uint32_t no_link = UINT32_MAX;
uint32_t link_to_parent(const Graph &graph, uint32_t vertex);

} // namespace qccl
