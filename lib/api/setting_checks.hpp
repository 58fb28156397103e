// Checks settings and a config together, beyond the form of each. Creation calls it on every rank:
// check_settings before the ranks compare their settings, fit_plan afterwards.
#pragma once

#include "api/comm_config.hpp"
#include "base/log.hpp"
#include "base/result.hpp"

namespace qccl {

inline constexpr const char *record_off = "off"; // value of QCCL_RECORD

// An error (invalid_argument) names the setting, its value and what is possible. Reads the file
// system if a setting names a folder.
Done check_settings(const CommConfig &comm_config, const EnvSettings &env_settings);

// Called when the numbers of ranks and nodes are known. Returns invalid_argument, the same on every
// rank, if the plan file is for another job. A communicator made by split or shrink goes on without
// the plan and tells `log` so, unless `log` is null.
Done fit_plan(CallPolicy &policy, const EnvSettings &env_settings, const Log *log);

} // namespace qccl
