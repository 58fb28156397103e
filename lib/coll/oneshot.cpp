// Oneshot: every rank sends each other rank everything that it needs, and each rank sums the
// decoded bytes of all ranks, its own included. One round, for small messages. The all-gather is
// direct's.

#include "coll/emitters.hpp"

#include <algorithm>

namespace qccl {

Schedule all_reduce_oneshot(const Team &t) {
    Schedule s{.chunks = 1, .outbox = std::min(t.size - 1, 1U)};
    for (uint32_t i = 1; i < t.size; i++) s.send(t.after(i), input(0));
    const Group all(ranks_in_turn(t.size), t.rank);
    s.finish(output(0), receive_and_sum(s, all, 0, OwnInput::as_encoded));
    return s;
}

// The outbox has a slot for the rank's own chunk, too, which is not sent: without it, two ranks
// could each wait for the other to release a slot before they sum, for ever.
Schedule reduce_scatter_oneshot(const Team &t) {
    Schedule s{.chunks = t.size, .outbox = t.size == 1 ? 0 : t.size};
    const Group all = each_with_its_own(t);
    scatter_inputs(s, all);
    s.finish(output(t.rank), receive_and_sum(s, all, t.rank, OwnInput::as_encoded));
    return s;
}

Schedule broadcast_oneshot(const Team &t) {
    Schedule s{.chunks = 1, .outbox = std::min(t.size - 1, 1U)};
    if (t.rank != t.root) {
        s.recv(t.root, output(0));
        return s;
    }
    s.copy(output(0), input(0));
    for (uint32_t i = 1; i < t.size; i++) s.send(t.after(i), output(0));
    return s;
}

Schedule barrier_oneshot(const Team &t) { return all_reduce_oneshot(t); }

uint32_t rounds_oneshot(Collective, uint32_t P) { return std::min(P - 1, 1U); }

// Every contribution to a result is encoded exactly once.
double noise_oneshot(Collective, uint32_t P) { return std::min(P - 1, 1U); }

} // namespace qccl
