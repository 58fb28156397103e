// What the tools' JSON says of the run that it comes from.
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

namespace qccl::perf {

// The time now and here, in a format of strftime.
std::string local_time(const char *format);

// An object of version, command_line, host, date (ISO 8601, local, with the distance from UTC) and
// settings: of each its value and by whom it is set, as qccl-info settings lists them, or null
// where the environment holds one that is refused.
nlohmann::ordered_json describe_run(const std::vector<std::string> &command_line);

} // namespace qccl::perf
