// Presents the results of qccl-perf. The table for people and scripts has the header, columns and
// footer of nccl-tests, field for field, followed by additional columns. The two JSON documents are
// qccl-perf's own, with one row for each case, and that of nccl-tests (-J); the functions format
// them and write no files. A progress line on standard error, if that is a terminal, shows how far
// a long run is. A simulated call becomes a trace for Perfetto (ui.perfetto.dev) and Chrome: hosts
// are processes, ranks are threads, the actions of a rank are slices, and messages are asynchronous
// events. Used on rank 0 and by simulations; qccl-info uses the description of a run too. One
// thread at a time uses an object.
//
// The table, the progress line and the trace are in report.cpp. The JSON documents and the
// description of a run are in report_json.cpp, which includes the JSON library.
#pragma once

#include "perf/cli/perf_arguments.hpp"
#include "perf/report/measurement.hpp"
#include "perf/report/tool_files.hpp"
#include "plan/simulator/simulator.hpp"
#include "schedule/rank_topology.hpp"

#include <cstdint>
#include <cstdio>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

namespace qccl::perf {

// ---- Description of a run

// Returns the current local time in a format of strftime.
std::string local_time(const char *format);

// Returns an object of version, command_line, host, date (ISO 8601, local time with the offset from
// UTC) and settings. `settings` lists the value and origin of each setting like qccl-info settings,
// or is null if the environment holds an invalid one.
nlohmann::ordered_json describe_run(const std::vector<std::string> &command_line);

// ---- Table

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

// ---- JSON

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

// ---- Progress

class ProgressLine {
public:
    explicit ProgressLine(uint64_t steps);
    ~ProgressLine() { clear(); }
    ProgressLine(const ProgressLine &) = delete;
    ProgressLine &operator=(const ProgressLine &) = delete;

    void show(uint64_t step, const std::string &what);
    // Call before anything else is printed.
    void clear();

private:
    bool is_terminal_;
    bool is_shown_ = false;
    uint64_t steps_;
};

// ---- Trace of a simulated call

class PerfettoTrace {
public:
    // `places` says where the ranks are; null: all are on one host. It must outlive the trace.
    static Result<PerfettoTrace> open(const std::string &path, const RankTopology *places);

    void add(const SimulatedSpan &span);
    // Writes the rest; returns the first error of any write.
    Done close();

private:
    PerfettoTrace(OutputFile file, const RankTopology *places)
        : file_(std::move(file)), places_(places) {}

    uint32_t host_of(uint32_t rank) const;
    void name_rank(uint32_t rank);
    void add_message(const SimulatedSpan &span, const char *where);
    void add_event(const char *text);
    void write();

    OutputFile file_;
    const RankTopology *places_;
    std::string text_;
    std::vector<bool> is_named_; // by rank
    uint64_t messages_ = 0;
    bool has_events_ = false;
    Done trouble_; // the first error
};

} // namespace qccl::perf
