// Prints the table of qccl-perf for people and scripts: the header, columns and footer of
// nccl-tests, field for field, followed by additional columns. Used on rank 0 and by simulations.
// One thread at a time.
#pragma once

#include "perf/perf_arguments.hpp"
#include "perf/row.hpp"

#include <cstdio>
#include <string>
#include <vector>

namespace qccl::perf {

// A rank's description of itself.
struct RankInfo {
    int32_t rank = 0;
    int32_t process = 0;
    char host[64] = {};
    int32_t device = 0; // its number among the devices of its kind
    char device_name[32] = {};
    char model[96] = {};
};

class Report {
public:
    Report(const PerfArguments &arguments, std::string program, std::FILE *out);

    void print_header(const std::vector<RankInfo> &ranks) const;
    void print_columns() const; // the last lines of the header
    void print_row(const Row &row);
    // memory_bytes: the largest memory use of rank 0; printed if requested.
    void print_footer(uint64_t memory_bytes) const;

    uint64_t rows_wrong() const { return rows_wrong_; }
    double average_busbw() const;
    // Returns whether the average is below the user's limit (NCCL_TESTS_MIN_BW).
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

// Returns the local time in the format of nccl-tests.
std::string timestamp();

} // namespace qccl::perf
