// Prints a topology as a tree of text in the manner of lstopo, as a matrix of the paths between
// GPUs, NICs and NUMA nodes in the manner of `nvidia-smi topo -m`, and together with the rings
// through it as a JSON document. qccl-info uses it. Pure; any thread may call it.
#pragma once

#include "topology/graph.hpp"
#include "topology/rank_order.hpp"

#include <cstdint>
#include <span>
#include <string>

namespace qccl {

// ---- Tree

// Returns a line for each part, below the part that contains it, with the link between the two in
// brackets and then the links to other parts. Of machines and racks that stand side by side and are
// built alike, the first is shown with their number. The last line explains the rates.
std::string print_tree(const Graph &graph);

// ---- Matrix

// Returns one matrix for each machine, or for the first of those that are built alike: the class of
// each path and the rate of its narrowest link. If there are several machines, a line follows about
// the path between two of them. The last lines explain the classes that occur.
std::string print_matrix(const Graph &graph);

// ---- JSON

// Returns an object with `version` (1), `connected`, `nodes` (the parts: `id`, `kind` and what is
// known of them; `parent` is an id), `links` (`from` and `to` are ids; `gb_per_s` each way and
// `latency_ns` are null if unknown), `ranks` (the ids of each rank's part and NIC), `rings` (ranks
// in their order) and `trees` (`parents` by rank). Bytes that are no UTF-8 become U+FFFD. `places`:
// by rank, its vertex.
std::string print_graph_json(const Graph &graph, std::span<const uint32_t> places,
                             const RankOrder &order);

} // namespace qccl
