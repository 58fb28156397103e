// The simulator's fabric of a job whose topology is known. Each link of the graph that has a rate
// is shared by the messages whose best paths use it, each direction by itself. The tools use it. It
// reads the graph only while the fabric is made.
#pragma once

#include "base/result.hpp"
#include "plan/simulator/fabric.hpp"
#include "topology/job_graph.hpp"

#include <memory>

namespace qccl {

// Links within machines whose rate is unknown are no bottleneck; neither is memory, whose cost
// counts as computing. Links between machines and their networks have the rate `rates.line_rate` if
// the graph gives none, or if `says_line_rate` is true. The latency and the processor time of
// messages are those of `rates`; the latencies of the links are added. Returns invalid_argument if
// no path connects two ranks.
Result<std::unique_ptr<Fabric>> make_graph_fabric(const JobTopology &job, const TieredRates &rates,
                                                  bool says_line_rate);

} // namespace qccl
