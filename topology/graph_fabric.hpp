// The simulator's fabric of a job whose topology is known: every link of the graph that has a rate
// is shared by the messages whose best paths lead over it, each way by itself. Used by the tools.
// Pure; reads the graph only while it is made.
#pragma once

#include "base/result.hpp"
#include "plan/fabric.hpp"
#include "topology/job_graph.hpp"

#include <memory>

namespace qccl {

// Links within machines whose rate is unknown, and memory, which computing counts, are no
// bottleneck. Links between machines and their networks have the rate `rates.line_rate` where the
// graph says none, or where `says_line_rate`. What messages take of latency and processors is
// `rates`', to which comes what the links say of latency. Refuses with invalid_argument ranks that
// no path connects.
Result<std::unique_ptr<Fabric>> make_graph_fabric(const JobTopology &job, const TieredRates &rates,
                                                  bool says_line_rate);

} // namespace qccl
