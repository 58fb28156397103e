// Runs one rank's part of a sweep over types, operations, roots and sizes. Used by qccl-perf's
// commands that measure. All ranks call it together, and it blocks until the sweep is done.
//
// A Point is one point of the sweep on one rank: it times its cases in turns, checks the results
// and finds out how many bytes were sent. All ranks run the same point together, and its functions
// block until all are done.
#pragma once

#include "perf/cli/perf_arguments.hpp"
#include "perf/report/measurement.hpp"
#include "perf/run/input_data.hpp"
#include "perf/run/measured_call.hpp"
#include "perf/run/mpi_module.hpp"
#include "perf/run/rank_group.hpp"
#include "perf/run/result_check.hpp"
#include "perf/run/session.hpp"

#include <functional>
#include <map>
#include <memory>
#include <vector>

namespace qccl::perf {

// ---- One point

struct RankContext {
    RankGroup &rank_group;
    qcclComm_t comm;
    const Source &source;
    const PerfArguments &arguments;
    const RankDevice &device;       // this rank's device
    const MpiModule *mpi = nullptr; // for the baseline; null if none is requested
};

// Receives progress and results while a rank measures. The functions are called on all ranks; those
// of qccl-perf's benchmark do something on rank 0 only.
struct ProgressListener {
    std::function<void(uint64_t step, const std::string &what)> progress;
    std::function<void(const Row &row)> row;
    std::function<void(const std::string &sentence)> note; // says what is left out and why
};

class Point {
public:
    // `send` has the size of the rank's input and `recv` operation.bytes() bytes, both in the
    // memory of the rank's device. If the device is a GPU, `host` is host memory of the size of the
    // larger one.
    Point(const RankContext &context, const Operation &operation, std::byte *send, std::byte *recv,
          std::byte *host)
        : context_(context), operation_(operation),
          counts_(OwnCounts::of(operation, context.rank_group.rank())), send_(send), recv_(recv),
          host_(host) {}

    // Prepares the cases. Leaves out combinations that are impossible, with a note.
    Done prepare(const ProgressListener &listener);
    Result<std::vector<Row>> run();

private:
    // One codec with one algorithm, ready for calls.
    struct Case {
        Codec codec;
        std::string asked;    // "auto" or the algorithm's name
        bool is_shown = true; // false: only measured for comparison
        CodecHandle handle;
        qcclCollConfig_t config = QCCL_COLL_CONFIG_INIT;
        PlanInfo plan;
    };

    Done add_case(const Codec &codec, const std::string &asked, bool is_shown);
    Result<std::vector<Measurement>> measure(bool in_place);
    Result<Measurement> summarize(const Times &times);
    Done inspect(const Case &one, bool in_place, Measurement &measurement);
    // What one call has done, by the library's counters.
    struct CallWork {
        uint64_t wire_bytes = 0; // the most that any rank has sent
        std::optional<TimeShares> shares{};
    };
    Result<CallWork> work_of(const std::function<Done()> &call);
    Result<uint64_t> lossless_wire_bytes(const std::string &algorithm);
    Row row_of(const Case &one, const Measurement &out_of_place, const Measurement &in_place) const;

    TimedCall timed_call(const Case &one, bool in_place);
    TimedCall baseline(bool in_place);
    bool has_baseline() const { return context_.mpi && context_.mpi->has(operation_); }
    std::string no_baseline_note() const;
    std::function<Done()> call_of(const qcclCollConfig_t *config, bool in_place);
    Done refill(bool in_place);
    Done poison();
    Done take_input();
    Result<const std::byte *> result_on_host(uint32_t call, bool in_place);
    Result<CheckResult> check_calls(const Codec &codec, bool in_place);
    uint64_t calls_per_refill(bool in_place) const;
    TurnOptions turn_options(size_t timed_calls, bool in_place) const;
    size_t element_bytes() const { return type_bytes(operation_.type); }

    const RankContext &context_;
    const Operation operation_;
    const OwnCounts counts_;
    std::optional<RankOp> op_; // after prepare()
    std::byte *const send_;
    std::byte *const recv_;
    std::byte *const host_;
    std::vector<std::unique_ptr<Case>> cases_;
    std::map<std::string, uint64_t> lossless_wires_; // by algorithm
};

// ---- The sweep

// Returns an upper bound, in bytes, for all buffers of one rank. A double, so that sizes beyond any
// memory do not overflow.
double buffer_bytes(const PerfArguments &arguments);

// Checks whether any of the requested calls is possible, regardless of size; otherwise the error
// says why not.
Done check_combinations(const PerfArguments &arguments);

Done run_benchmark(const RankContext &context, const ProgressListener &listener);

} // namespace qccl::perf
