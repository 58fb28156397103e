// Plans the sums of a job's tensors, each by its size: whether it is compressed, with which codec,
// by which algorithm, and into how many parts it is cut. Writes the plans as the rules of a plan
// file. Used by qccl-info plan. Pure; a planner is used by one thread at a time, nothing blocks.
#pragma once

#include "plan/partitioning.hpp"
#include "plan/plan_file.hpp"
#include "plan/planner.hpp"

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace qccl {

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
// and nodes. plans[i] is the plan of tensors[i].
PlanFile plan_file_of(std::span<const NamedTensor> tensors, std::span<const TensorPlan> plans,
                      uint32_t ranks, uint32_t nodes);

} // namespace qccl
