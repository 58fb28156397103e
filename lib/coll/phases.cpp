// Composes the schedules of whole teams from phases.
#include "coll/phases.hpp"

#include <algorithm>

namespace qccl {

Parts inputs(const Schedule &schedule) {
    Parts parts;
    for (uint32_t c = 0; c < schedule.chunks; c++) parts.push_back(input(c));
    return parts;
}

Schedule reduce_scatter_by(const Phases &phases, const Group &team, uint32_t outbox) {
    Schedule s{.chunks = team.size(), .outbox = outbox};
    Parts parts = inputs(s);
    phases.collect(s, team, parts);
    for (const uint32_t c : team.own_chunks()) s.finish(output(c), parts[c]);
    return s;
}

Schedule all_reduce_by(const Phases &phases, const Group &team, uint32_t outbox) {
    Schedule s = reduce_scatter_by(phases, team, outbox);
    phases.deliver(s, team);
    return s;
}

// A rank encodes only one chunk, its own.
Schedule all_gather_by(const Phases &phases, const Group &team) {
    Schedule s{.chunks = team.size(), .outbox = std::min(team.size() - 1, 1U)};
    for (const uint32_t c : team.own_chunks()) s.copy(output(c), input(c));
    phases.deliver(s, team);
    return s;
}

} // namespace qccl
