// The project's own text form of a topology: one line for each part and each link. The tools write
// a topology down in it and read it again. Pure; any thread may call it.
//
//   qccl topology 1
//   part 0 machine name node0
//   part 1 numa in 0 cpus ff
//   part 2 gpu in 1 number 3 bus 0000:1b:00.0 arch sm90
//   link 0 1 cpu_interconnect rate 62.4
//   link 1 2 pcie rate 63.01538461538462 latency 500 width 16
//
// Parts are numbered in order from 0; `in` names the part that contains this one. Rates are GB/s
// each way, latencies ns; both are 0 (unknown) if they are left out. `number` is 0 and `width` is 1
// if left out. NICs may have the words rdma and gpudirect. A `#` at the place of a word begins a
// comment. Words that hold anything but letters, digits and _ . : , / + - are quoted; in quotes \",
// \\ and \xHH stand for a quote, a backslash and any byte.
#pragma once

#include "base/result.hpp"
#include "topology/graph.hpp"

#include <string>
#include <string_view>

namespace qccl {

inline constexpr std::string_view graph_text_head = "qccl topology 1";
inline constexpr size_t most_graph_text_bytes = size_t{256} << 20;

// If the graph passes check(), parse_graph_text() returns the same graph again, to the last bit.
std::string print_graph_text(const Graph &graph);

// `source` names the text in errors. Returns a graph that has passed check(), or invalid_argument
// with a sentence that names the line.
Result<Graph> parse_graph_text(std::string_view text, std::string_view source);

} // namespace qccl
