// Counts the sends or receives in a row that have the same peer.
#include "schedule/message_series.hpp"

namespace qccl {

std::vector<uint32_t> places_in_series(const Schedule &schedule) {
    std::vector<uint32_t> places(schedule.steps.size());
    const Step *before = nullptr;
    uint32_t place = 0;
    for (size_t i = 0; i < places.size(); i++) {
        const Step &step = schedule.steps[i];
        if (computes(step.verb)) continue;
        const bool goes_on = before && before->verb == step.verb && before->peer == step.peer;
        place = goes_on ? place + 1 : 0;
        places[i] = place;
        before = &step;
    }
    return places;
}

} // namespace qccl
