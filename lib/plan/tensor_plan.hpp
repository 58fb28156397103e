// Plans the sums of a job's tensors, each by its size: whether it is compressed, with which codec,
// by which algorithm, and into how many parts it is cut. Writes the plans as the rules of a plan
// file.
//
// The decision on compression and parts follows selective compression and partitioning, as in
// SeCoPa of HiPress (Bai et al., "Gradient Compression Supercharged High-Performance Data Parallel
// DNN Training", SOSP'21). choose_partitioning() takes the times of all possibilities: plans of
// tensors ask the planner for them, tests use the published formulas.
//
// Used by qccl-info plan. Pure; a planner is used by one thread at a time, nothing blocks.
#pragma once

#include "plan/call_policy.hpp"
#include "plan/planner.hpp"

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace qccl {

// ---- Partitioning

// The time of a tensor that is cut into so many parts, in any unit that all times share.
struct PartsTime {
    uint32_t parts = 1;
    double time = 0;
};

// How much times have to differ to count as different; 1: any difference counts.
struct PartitionThresholds {
    // Among times that differ by less than this factor, the one with the fewest parts wins.
    double equal_time = 1;
    // A tensor is compressed if that makes it more than this many times as fast.
    double least_gain = 1;
};

struct Partitioning {
    bool is_compressed = false;
    PartsTime best = {}; // the decision
    // The best without and with compression. If there are no times with compression, both are
    // equal.
    PartsTime lossless = {}, compressed = {};
};

// Decides for one tensor. `lossless` has at least one time, `compressed` may have none. Both are
// ordered by the number of parts, ascending.
Partitioning choose_partitioning(std::span<const PartsTime> lossless,
                                 std::span<const PartsTime> compressed,
                                 const PartitionThresholds &thresholds = {});

// ---- Plans of tensors

struct NamedTensor {
    std::string name;
    uint64_t count = 0;
    DataType type = DataType::float32;
};

struct TensorPlan {
    Plan plan; // for the chosen number of parts
    // Times in ns, as the planner predicts them. The number of parts is that of the plan file.
    Partitioning partitioning;
};

// Tensors of one type and count are the same call to the library, so they have one plan.
class TensorPlanner {
public:
    // `like` has the ranks, their places and the codec. A tensor is compressed if `like.codec`
    // makes its sum least_gain times as fast. If that codec says min=, a tensor of at least that
    // many bytes is compressed if its sum becomes faster at all. On one host, and over links of
    // unknown rate, only a codec that says min= is used. For auto, codec and algorithm are those
    // that keep the budget. `forced`: as in choose(). `like.places` has to outlive the planner.
    TensorPlanner(const Problem &like, PlannerInputs inputs, Algorithm forced = {});

    // Returns the plan of a tensor. An error (invalid_argument) says why the call is impossible.
    Result<TensorPlan> plan(uint64_t count, DataType type);

private:
    struct Cuts;
    Result<Cuts> cuts_of(const Problem &problem, const Algorithm &forced);
    Result<Cuts> compressed_cuts(const Problem &problem);

    const Problem like_;
    PlannerInputs inputs_;
    const Algorithm forced_;
    StepCountCache counts_;
    std::map<std::pair<uint64_t, DataType>, TensorPlan> known_;
};

// Returns a rule for each count and type, in the order of the tensors, for jobs of so many ranks
// and hosts. plans[i] is the plan of tensors[i].
PlanFile plan_file_of(std::span<const NamedTensor> tensors, std::span<const TensorPlan> plans,
                      uint32_t ranks, uint32_t hosts);

} // namespace qccl
