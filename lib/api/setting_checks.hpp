// Checks what settings and a config say together, beyond the form of each. Creation calls it on
// every rank before the ranks compare their settings.
#pragma once

#include "api/wishes.hpp"
#include "base/log.hpp"
#include "base/result.hpp"

namespace qccl {

inline constexpr const char *record_off = "off"; // QCCL_RECORD

// An error (invalid_argument) names the setting, its value and what is possible. Reads the file
// system where a setting names a folder.
Done check_settings(const CommWishes &wishes, const Surroundings &surroundings);

// Once it is known how many ranks and nodes there are: an error (invalid_argument), the same on
// every rank, where the plan file is another job's. A communicator that is split or shrunk goes on
// without it, which `log` is told unless it is null.
Done fit_plan(CallPolicy &policy, const Surroundings &surroundings, const Log *log);

} // namespace qccl
