// Prints a topology and the rings through it as a JSON document. qccl-info uses it. Pure; any
// thread may call it.
#pragma once

#include "topology/graph.hpp"
#include "topology/rank_order.hpp"

#include <cstdint>
#include <span>
#include <string>

namespace qccl {

// Returns an object with `version` (1), `connected`, `nodes` (the parts: `id`, `kind` and what is
// known of them; `parent` is an id), `links` (`from` and `to` are ids; `gb_per_s` each way and
// `latency_ns` are null if unknown), `ranks` (the ids of each rank's part and NIC), `rings` (ranks
// in their order) and `trees` (`parents` by rank). Bytes that are no UTF-8 become U+FFFD. `places`:
// by rank, its vertex.
std::string print_graph_json(const Graph &graph, std::span<const uint32_t> places,
                             const RankOrder &order);

} // namespace qccl
