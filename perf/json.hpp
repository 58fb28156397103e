// Formats the two JSON documents of qccl-perf: its own, with one row for each case, and that of
// nccl-tests (-J). Writes no files. Any thread.
#pragma once

#include "perf/perf_arguments.hpp"
#include "perf/report.hpp"
#include "perf/row.hpp"

#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

namespace qccl::perf {

// Head, rows and tail make a document; see JsonFile. The head says what was run, where and when,
// and with which settings.
std::string rows_head(const std::vector<std::string> &command_line);
inline constexpr const char *rows_tail = "\n]}\n";
// Returns one object, for the out-of-place or the in-place measurement.
nlohmann::ordered_json row_json(const Row &row, bool in_place);
// Returns two objects for a Row, out of place first. Values that are unknown are null.
std::string rows_json(const Row &row);

// The format of nccl-tests.
struct RunInfo {
    std::string start_time;
    std::vector<std::string> command_line;
    std::vector<RankInfo> ranks;
};
std::string nccl_head(const PerfArguments &arguments, const RunInfo &run);
std::string nccl_row(const Row &row, const PerfArguments &arguments);
// The results so far.
struct RunResult {
    uint64_t rows_wrong = 0;
    double average_busbw = 0;
    std::optional<bool> is_fast_enough; // nothing if the user has set no limit
};
std::string nccl_tail(const RunResult &result, const std::string &end_time);

} // namespace qccl::perf
