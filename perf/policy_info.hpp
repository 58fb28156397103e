// The rules for calls that the settings of this process define, as qccl-info shows them and as a
// SimulatedJob applies them. Reads the plan file. Any thread.
#pragma once

#include "base/settings.hpp"
#include "plan/call_policy.hpp"

namespace qccl::perf {

// Reads the file that QCCL_PLAN_FILE names.
Result<EnvRules> read_env_rules(const Settings &settings);

// Prints the items of QCCL_CODEC and QCCL_ALGO that have conditions, and what the plan file is for.
void print_rules(const EnvRules &rules);

// Returns the policy for the calls of a communicator with this name and with so many ranks and
// nodes. Fails with invalid_argument if the plan file belongs to another job.
Result<CallPolicy> policy_here(const Settings &settings, uint32_t ranks, uint32_t nodes,
                               const std::string &communicator = {});

} // namespace qccl::perf
