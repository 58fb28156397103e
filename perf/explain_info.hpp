// qccl-info explain: shows as text and as JSON what the planner would do with calls and why, on a
// machine that need not exist. Used by qccl-info. Blocks while it plans.
#pragma once

#include "perf/explain_arguments.hpp"

namespace qccl::perf {

// `question` must be complete (see complete_question). Fails if a file cannot be written, a plan
// file belongs to another job, or no algorithm can perform a call.
Done print_explanations(const ExplainQuestion &question);

} // namespace qccl::perf
