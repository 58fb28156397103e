// The two JSON documents that qccl-perf writes: its own, one row for each case, and nccl-tests'
// (-J). Writes no files.
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
// and by which settings.
std::string rows_head(const std::vector<std::string> &command_line);
inline constexpr const char *rows_tail = "\n]}\n";
// One object: of the measurement out of place, or in place.
nlohmann::ordered_json row_json(const Row &row, bool in_place);
// Two objects for each Row, out of place first. Null where there is nothing to say.
std::string rows_json(const Row &row);

// nccl-tests' format.
struct RunInfo {
    std::string start_time;
    std::vector<std::string> command_line;
    std::vector<RankInfo> ranks;
};
std::string nccl_head(const PerfArguments &arguments, const RunInfo &run);
std::string nccl_row(const Row &row, const PerfArguments &arguments);
// What is so far.
struct RunResult {
    uint64_t rows_wrong = 0;
    double average_busbw = 0;
    std::optional<bool> is_fast_enough; // nothing: nobody has said what is
};
std::string nccl_tail(const RunResult &result, const std::string &end_time);

} // namespace qccl::perf
