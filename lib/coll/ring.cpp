#include "coll/ring.hpp"

#include <algorithm>

namespace qccl {

namespace {

// One sum is on its way to the next rank while the following one is being made. With one slot, two
// ranks would each wait for the other to read what it needs the room of.
uint32_t sums_in_flight(const Team &t) { return t.size == 1 ? 0 : 2; }

// Every chunk travels once round, collecting the sum; `first` is the one that starts here. The one
// that ends here, first + 1, is complete, and where it lies is returned.
Slot collect(Schedule &s, const Team &t, uint32_t first) {
    const uint32_t P = t.size;
    for (uint32_t i = 1; i < P; i++) {
        const uint32_t c = (first + P - i) % P, leaving = (c + 1) % P;
        s.send(t.after(1), i == 1 ? input(leaving) : sum(leaving));
        s.recv(t.before(1), sum(c));
        s.reduce(sum(c), input(c));
    }
    return P == 1 ? input(0) : sum((first + 1) % P);
}

// Every chunk travels once round and stays everywhere; `own` is the one that this rank has.
void deliver(Schedule &s, const Team &t, uint32_t own) {
    const uint32_t P = t.size;
    for (uint32_t i = 1; i < P; i++) {
        const uint32_t c = (own + P - i) % P;
        s.send(t.after(1), output((c + 1) % P));
        s.recv(t.before(1), output(c));
    }
}

} // namespace

Schedule all_reduce_ring(const Team &t) {
    Schedule s{.chunks = t.size, .outbox = sums_in_flight(t)};
    const Slot complete = collect(s, t, t.rank);
    s.finish(output(complete.index), complete);
    deliver(s, t, complete.index);
    return s;
}

// The chunk that ends here has to be this rank's, so each starts at the rank after its owner.
Schedule reduce_scatter_ring(const Team &t) {
    Schedule s{.chunks = t.size, .outbox = sums_in_flight(t)};
    s.finish(output(t.rank), collect(s, t, t.before(1)));
    return s;
}

Schedule all_gather_ring(const Team &t) {
    Schedule s{.chunks = t.size, .outbox = std::min(t.size - 1, 1U)};
    s.copy(output(t.rank), input(t.rank));
    deliver(s, t, t.rank);
    return s;
}

// A chain from the root on: segments follow one another down the chain.
Schedule broadcast_ring(const Team &t) {
    Schedule s{.chunks = 1, .outbox = std::min(t.size - 1, 1U)};
    if (t.rank == t.root)
        s.copy(output(0), input(0));
    else
        s.recv(t.before(1), output(0));
    if (t.after(1) != t.root) s.send(t.after(1), output(0));
    return s;
}

uint32_t rounds_ring(Collective collective, uint32_t P) {
    return collective == Collective::all_reduce ? 2 * (P - 1) : P - 1;
}

// Hop i encodes the sum of i ranks, and the last one the result. That earlier hops' losses are
// encoded too is left out: a formula for Gaussian losses is wrong where they matter most.
double noise_ring(Collective collective, uint32_t P) {
    if (P == 1) return 0;
    if (collective == Collective::all_reduce) return (P + 1) / 2.0;
    return collective == Collective::reduce_scatter ? (P - 1) / 2.0 : 1;
}

} // namespace qccl
