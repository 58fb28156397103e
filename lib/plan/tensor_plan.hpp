// Plans the sums of a job's tensors, each by its size: whether it is compressed, with which codec,
// by which algorithm, and into how many parts it is cut; and writes that as a plan file's rules.
// qccl-info plan asks it. Pure; a planner is used by one thread at a time, nothing blocks.
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
    Plan plan; // of the parts that were decided on
    // Times in ns, as the planner predicts them; the number of parts is that of the plan file.
    Partitioning partitioning;
};

// Tensors of one type and count are one call to the library, and have one plan.
class TensorPlanner {
public:
    // `like` says where the ranks are, and the codec: a tensor is compressed if `like.codec` makes
    // its sum least_gain times as fast, or, where that codec says min=, faster at all, from that
    // many bytes on; on one host, and over lines of unknown rate, only where it says min=. Of auto,
    // with the codec and the algorithm that keep the budget. `forced` as in choose. `like.places`
    // has to outlive the planner.
    TensorPlanner(const Problem &like, Tables tables, Algorithm forced = {});

    // An error (invalid_argument) says why such a call cannot be.
    Result<TensorPlan> plan(uint64_t count, DataType type);

private:
    struct Cuts;
    Result<Cuts> cuts_of(const Problem &problem, const Algorithm &forced);
    Result<Cuts> compressed_cuts(const Problem &problem);

    const Problem like_;
    Tables tables_;
    const Algorithm forced_;
    StepCounts counts_;
    std::map<std::pair<uint64_t, DataType>, TensorPlan> known_;
};

// A rule for each count and type, in the order of the tensors; for jobs of so many ranks and nodes.
// `tensors` and `plans` go together.
PlanFile plan_file_of(std::span<const NamedTensor> tensors, std::span<const TensorPlan> plans,
                      uint32_t ranks, uint32_t nodes);

} // namespace qccl
