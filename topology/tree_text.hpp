// Prints a topology as a tree of text, in the manner of lstopo. qccl-info uses it. Pure; any thread
// may call it.
#pragma once

#include "topology/graph.hpp"

#include <string>

namespace qccl {

// Returns a line for each part, below the part that contains it, with the link between the two in
// brackets and then the links to other parts. Of machines and racks that stand side by side and are
// built alike, the first is shown with their number. The last line explains the rates.
std::string print_tree(const Graph &graph);

} // namespace qccl
