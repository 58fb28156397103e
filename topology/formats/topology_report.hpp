// Reports on a topology. The tree, the matrix and the picture share short texts for parts and
// links, and the search for machines and racks that are built alike, so that a report shows only
// one of them. Pure; any thread may call it.
//
// The functions print a topology as a tree of text in the manner of lstopo, as a matrix of the
// paths between GPUs, NICs and NUMA nodes in the manner of `nvidia-smi topo -m`, and together with
// the rings through it as a JSON document. qccl-info uses it. Pure; any thread may call it.
#pragma once

#include "topology/graph.hpp"
#include "topology/rank_order.hpp"

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace qccl {

// ---- Texts of parts and links

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

// ---- Machines built alike

// Machines are alike if they have the same parts and links. Networks are alike if they contain
// alike machines in the same order. Names, numbers and bus ids do not count. Keeps a reference to
// `graph`.
class Likeness {
public:
    explicit Likeness(const Graph &graph);

    // Equal for machines and networks that are alike.
    uint32_t shape(uint32_t vertex) const { return shapes_[vertex]; }

private:
    std::string describe_machine(uint32_t machine) const;
    std::string describe_links(uint32_t vertex, const std::map<uint32_t, size_t> &places) const;

    const Graph &graph_;
    std::vector<uint32_t> shapes_; // by vertex; 0 for parts of machines
};

// Members of a network that follow each other and are alike.
struct AlikeRun {
    uint32_t first = 0; // vertex
    uint32_t count = 0;
};

// Groups the children of `network`. A child that is neither a machine nor a network is a run by
// itself.
std::vector<AlikeRun> alike_runs(const Graph &graph, const Likeness &likeness, uint32_t network);

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
