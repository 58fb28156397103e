// Writes a simulated call as a trace that Perfetto (ui.perfetto.dev) and Chrome show: hosts as
// processes, ranks as threads, what each does as slices, messages on their way beside them.
#pragma once

#include "perf/output_file.hpp"
#include "plan/simulator.hpp"
#include "schedule/places.hpp"

#include <string>
#include <vector>

namespace qccl::perf {

class PerfettoTrace {
public:
    // `places`: of the ranks; null: all are on one host. Kept.
    static Result<PerfettoTrace> open(const std::string &path, const Places *places);

    void add(const SimulatedSpan &span);
    // Writes the rest, and says whether all could be written.
    Done close();

private:
    PerfettoTrace(OutputFile file, const Places *places)
        : file_(std::move(file)), places_(places) {}

    uint32_t host_of(uint32_t rank) const;
    void name_rank(uint32_t rank);
    void add_message(const SimulatedSpan &span, const char *where);
    void add_event(const char *text);
    void write();

    OutputFile file_;
    const Places *places_;
    std::string text_;
    std::vector<bool> is_named_; // by rank
    uint64_t messages_ = 0;
    bool has_events_ = false;
    Done trouble_; // the first
};

} // namespace qccl::perf
