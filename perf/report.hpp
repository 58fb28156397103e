// The table that people and their scripts read: nccl-tests' header, columns and footer, field for
// field; ours come after them.
#pragma once

#include "perf/perf_arguments.hpp"
#include "perf/row.hpp"

#include <cstdio>
#include <string>
#include <vector>

namespace qccl::perf {

// What a rank says about itself.
struct RankInfo {
    int32_t rank = 0;
    int32_t process = 0;
    char host[64] = {};
    int32_t device = 0; // its number among those of its kind
    char device_name[32] = {};
    char model[96] = {};
};

class Report {
public:
    Report(const PerfArguments &arguments, std::string program, std::FILE *out);

    void print_header(const std::vector<RankInfo> &ranks) const;
    void print_columns() const; // the last lines of the header
    void print_row(const Row &row);
    // memory_bytes: the most that rank 0 held; shown if it was asked for.
    void print_footer(uint64_t memory_bytes) const;

    uint64_t rows_wrong() const { return rows_wrong_; }
    double average_busbw() const;
    // Whether that is below what the user asks for (NCCL_TESTS_MIN_BW).
    bool is_too_slow() const;

private:
    void print_measurement(const Row &row, const Measurement &measurement);

    const PerfArguments &arguments_;
    std::string program_;
    std::FILE *out_;
    int codec_width_;
    uint64_t rows_wrong_ = 0;
    uint64_t measurements_ = 0;
    double busbw_sum_ = 0;
};

// Local time as nccl-tests writes it.
std::string timestamp();

} // namespace qccl::perf
