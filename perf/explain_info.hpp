// qccl-info explain: what the planner would do with calls on a machine that need not be there, and
// why, as text and as JSON.
#pragma once

#include "perf/explain_arguments.hpp"

namespace qccl::perf {

// Of a complete question. Fails where a file cannot be written, a plan file is another job's, or no
// algorithm can do a call.
Done print_explanations(const ExplainQuestion &question);

} // namespace qccl::perf
