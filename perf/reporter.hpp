// Writes the table, notes, progress and JSON of a running benchmark. Used by qccl-perf on rank 0.
// One thread at a time.
#pragma once

#include "perf/json.hpp"
#include "perf/json_file.hpp"
#include "perf/point.hpp"
#include "perf/progress_line.hpp"
#include "perf/report.hpp"

#include <optional>
#include <set>

namespace qccl::perf {

// The output files that the command line requests.
struct Outputs {
    std::optional<JsonFile> rows, nccl;

    static Result<Outputs> open(const PerfArguments &arguments);
    // Call when the run is over, whether it has succeeded or not.
    Done deliver() const;
};

class Reporter {
public:
    // Prints the header; `steps` is the number of points in a cycle.
    Reporter(const PerfArguments &arguments, const std::string &program, Outputs &outputs,
             RunInfo run, uint64_t steps);

    ProgressListener listener();
    void note(const std::string &sentence); // prints each sentence once
    // Prints the footer; fails if anything could not be written.
    Done finish();

    // Returns whether a result was wrong or the average is slower than the user allows.
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
    Done trouble_; // the first error
};

} // namespace qccl::perf
