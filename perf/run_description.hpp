// Describes a run in the JSON output of the tools. Used by qccl-perf and qccl-info. Any thread.
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

namespace qccl::perf {

// Returns the current local time in a format of strftime.
std::string local_time(const char *format);

// Returns an object of version, command_line, host, date (ISO 8601, local time with the offset from
// UTC) and settings. `settings` lists the value and origin of each setting like qccl-info settings,
// or is null if the environment holds an invalid one.
nlohmann::ordered_json describe_run(const std::vector<std::string> &command_line);

} // namespace qccl::perf
