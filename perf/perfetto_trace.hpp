// Writes a simulated call as a trace for Perfetto (ui.perfetto.dev) and Chrome: hosts are
// processes, ranks are threads, the actions of a rank are slices, and messages are asynchronous
// events. Used by qccl-perf simulate. One thread at a time.
#pragma once

#include "perf/output_file.hpp"
#include "plan/simulator.hpp"
#include "schedule/rank_topology.hpp"

#include <string>
#include <vector>

namespace qccl::perf {

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
