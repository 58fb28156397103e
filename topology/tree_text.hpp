// A topology as a tree of text, in the manner of lstopo. Used by qccl-info. Pure.
#pragma once

#include "topology/graph.hpp"

#include <string>

namespace qccl {

// A line for each part, below the one that contains it, with the link between the two in brackets
// and then its links to others. Of machines and racks that stand side by side and are built alike
// the first is shown, with their number. Ends with a line on the rates.
std::string print_tree(const Graph &graph);

} // namespace qccl
