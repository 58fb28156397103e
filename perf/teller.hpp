// What rank 0 tells people and files while a benchmark runs: the table, notes, progress, JSON.
#pragma once

#include "perf/json.hpp"
#include "perf/json_file.hpp"
#include "perf/point.hpp"
#include "perf/progress_line.hpp"
#include "perf/report.hpp"

#include <optional>
#include <set>

namespace qccl::perf {

// The files that the command line asks for.
struct Outputs {
    std::optional<JsonFile> rows, nccl;

    static Result<Outputs> open(const PerfArguments &arguments);
    // When the run is over, however it ended.
    Done deliver() const;
};

class Teller {
public:
    // Prints the header; `steps` are the points of a cycle.
    Teller(const PerfArguments &arguments, const std::string &program, Outputs &outputs,
           RunInfo run, uint64_t steps);

    Audience audience();
    void note(const std::string &sentence); // once
    // Prints the footer; fails if something could not be written.
    Done finish();

    // Whether a result was wrong, or all together slower than the user allows.
    bool has_failed() const { return report_.rows_wrong() > 0 || report_.is_too_slow(); }

private:
    void take(const Row &row);
    void try_to(const Done &write);
    std::string nccl_tail_now() const;

    const PerfArguments &arguments_;
    Outputs &outputs_;
    ProgressLine progress_;
    std::FILE *out_;
    Report report_;
    std::set<std::string> notes_;
    Done trouble_; // the first
};

} // namespace qccl::perf
