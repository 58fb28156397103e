#include "schedule/batches.hpp"

namespace qccl {

std::vector<bool> find_followers(const Schedule &schedule) {
    std::vector<bool> follows(schedule.steps.size());
    const Step *before = nullptr;
    for (size_t i = 0; i < follows.size(); i++) {
        const Step &step = schedule.steps[i];
        if (computes(step.verb)) continue;
        follows[i] = before && before->verb == step.verb && before->peer == step.peer;
        before = &step;
    }
    return follows;
}

} // namespace qccl
