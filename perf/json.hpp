// The two JSON files that qccl-perf writes: its own, one row for each case, and nccl-tests' (-J).
#pragma once

#include "base/result.hpp"
#include "perf/perf_arguments.hpp"
#include "perf/report.hpp"
#include "perf/row.hpp"

#include <string>
#include <vector>

namespace qccl::perf {

// {"rows": [...]}; two rows for each Row, out of place first. Null where there is nothing to say.
std::string rows_json(const std::vector<Row> &rows);

struct RunInfo {
    std::string start_time, end_time;
    std::vector<std::string> command_line;
    std::vector<RankInfo> ranks;
    uint64_t rows_wrong = 0;
    double average_busbw = 0;
};
std::string nccl_json(const std::vector<Row> &rows, const PerfArguments &arguments,
                      const RunInfo &run);

// "-" is standard output.
Done write_text(const std::string &path, const std::string &text);
// As nccl-tests does: never over a file that is there; ".0", ".1", ... are tried after the name.
Result<std::string> write_new_file(const std::string &path, const std::string &text);

} // namespace qccl::perf
