// What the settings of this process want of calls, as qccl-info shows it.
#pragma once

#include "base/settings.hpp"
#include "plan/call_policy.hpp"

namespace qccl::perf {

// Reads the file that QCCL_PLAN_FILE names.
Result<EnvRules> read_env_rules(const Settings &settings);

// The items of QCCL_CODEC and QCCL_ALGO, where they have conditions, and what the plan file is for.
void print_rules(const EnvRules &rules);

// Of the calls of a communicator of this name that has so many ranks and nodes. An error where the
// plan file is another job's.
Result<CallPolicy> policy_here(const Settings &settings, uint32_t ranks, uint32_t nodes,
                               const std::string &communicator = {});

} // namespace qccl::perf
