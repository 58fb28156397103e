// One point of a sweep, on one rank: times its cases in turns, checks results and finds out what
// travelled. Every rank runs the same.
#pragma once

#include "perf/contest.hpp"
#include "perf/datagen.hpp"
#include "perf/mpi_module.hpp"
#include "perf/perf_arguments.hpp"
#include "perf/plan_info.hpp"
#include "perf/row.hpp"
#include "perf/session.hpp"

#include <functional>
#include <map>
#include <memory>

namespace qccl::perf {

struct Stage {
    Crew &crew;
    qcclComm_t comm;
    const Source &source;
    const PerfArguments &arguments;
    const RankDevice &device;       // this rank's
    const MpiModule *mpi = nullptr; // the baseline, where one is asked for
};

// What rank 0 does meanwhile; the functions may be called on the others too, and do nothing there.
struct Audience {
    std::function<void(uint64_t step, const std::string &what)> progress;
    std::function<void(const Row &row)> row;
    std::function<void(const std::string &sentence)> note; // what is left out, and why
};

class Point {
public:
    // `send` holds what a rank gives, `recv` operation.bytes(), both where the rank's device has
    // its memory; `host`, where that is a GPU, as much as the larger one.
    Point(const Stage &stage, const Operation &operation, std::byte *send, std::byte *recv,
          std::byte *host)
        : stage_(stage), operation_(operation), send_(send), recv_(recv), host_(host) {}

    // Leaves out what cannot be, with a note.
    Done prepare(const Audience &audience);
    Result<std::vector<Row>> run();

private:
    // One codec with one algorithm, ready to be called.
    struct Case {
        Codec codec;
        std::string asked;    // "auto" or the algorithm's name
        bool is_shown = true; // else it only serves as what the others are compared with
        CodecHandle handle;
        qcclCollConfig_t config = QCCL_COLL_CONFIG_INIT;
        PlanInfo plan;
    };

    Done add_case(const Codec &codec, const std::string &asked, bool is_shown);
    Result<std::vector<Measurement>> measure(bool in_place);
    Result<Measurement> summarize(const Times &times);
    Done inspect(const Case &one, bool in_place, Measurement &measurement);
    // What one call has done, from the library's own counters.
    struct CallWork {
        uint64_t wire_bytes = 0; // the most that a rank has sent
        std::optional<TimeShares> shares{};
    };
    Result<CallWork> work_of(const std::function<Done()> &call);
    Result<uint64_t> lossless_wire_bytes(const std::string &algorithm);
    Row row_of(const Case &one, const Measurement &out_of_place, const Measurement &in_place) const;

    Contestant contestant(const Case &one, bool in_place);
    Contestant baseline(bool in_place);
    bool has_baseline() const { return stage_.mpi && stage_.mpi->has(operation_); }
    std::string no_baseline_note() const;
    std::function<Done()> call_of(const qcclCollConfig_t *config, bool in_place);
    Done refill(bool in_place);
    Done poison();
    Done take_input();
    Result<const std::byte *> result_on_host(bool in_place);
    uint64_t calls_per_refill(bool in_place) const;
    TurnOptions turn_options(size_t contestants, bool in_place) const;
    size_t element_bytes() const { return type_bytes(operation_.type); }

    const Stage &stage_;
    const Operation operation_;
    std::byte *const send_;
    std::byte *const recv_;
    std::byte *const host_;
    std::vector<std::unique_ptr<Case>> cases_;
    std::map<std::string, uint64_t> lossless_wires_; // by algorithm
};

} // namespace qccl::perf
