#include "coll/direct.hpp"

#include <algorithm>

namespace qccl {

// Peers are dealt with from the next rank on, so that no rank is everybody's first.

void scatter_inputs(Schedule &s, const Team &t) {
    for (uint32_t i = 1; i < t.size; i++) s.send(t.after(i), input(t.after(i)));
}

void receive_and_sum(Schedule &s, const Team &t, uint32_t chunk, OwnInput own) {
    // What is alone is no sum: its bits stay what they are.
    if (t.size == 1) return s.finish(output(chunk), input(chunk));
    for (uint32_t i = 1; i < t.size; i++) {
        const uint32_t peer = t.before(i);
        s.recv(peer, wire(peer < t.rank ? peer : peer - 1), chunk);
    }
    s.reduce(sum(chunk), wire(0), t.rank);
    if (own == OwnInput::as_encoded)
        s.reduce_as_encoded(sum(chunk), input(chunk));
    else
        s.reduce(sum(chunk), input(chunk));
    s.reduce(sum(chunk), wire(t.rank), t.size - 1 - t.rank);
    s.finish(output(chunk), sum(chunk));
}

namespace {

// Every rank sends each other one the chunk that it owns, and sums its own.
void scatter_and_sum(Schedule &s, const Team &t) {
    scatter_inputs(s, t);
    receive_and_sum(s, t, t.rank, OwnInput::exact);
}

// Every rank sends its chunk to all.
void exchange(Schedule &s, const Team &t) {
    for (uint32_t i = 1; i < t.size; i++) s.send(t.after(i), output(t.rank));
    for (uint32_t i = 1; i < t.size; i++) s.recv(t.before(i), output(t.before(i)));
}

} // namespace

Schedule all_reduce_direct(const Team &t) {
    Schedule s{.chunks = t.size, .outbox = t.size == 1 ? 0 : t.size};
    scatter_and_sum(s, t);
    exchange(s, t);
    return s;
}

Schedule reduce_scatter_direct(const Team &t) {
    Schedule s{.chunks = t.size, .outbox = t.size - 1};
    scatter_and_sum(s, t);
    return s;
}

Schedule all_gather_direct(const Team &t) {
    Schedule s{.chunks = t.size, .outbox = t.size == 1 ? 0U : 1U};
    s.copy(output(t.rank), input(t.rank));
    exchange(s, t);
    return s;
}

// The root deals out the chunks, and every rank passes its own on to the others.
Schedule broadcast_direct(const Team &t) {
    Schedule s{.chunks = t.size, .outbox = t.size == 1 ? 0 : t.size};
    if (t.rank == t.root) {
        for (uint32_t i = 1; i <= t.size; i++) {
            const uint32_t c = t.after(i);
            s.copy(output(c), input(c));
            if (c != t.rank) s.send(c, output(c));
        }
        for (uint32_t i = 1; i < t.size; i++) s.send(t.after(i), output(t.rank));
        return s;
    }
    s.recv(t.root, output(t.rank));
    for (uint32_t i = 1; i < t.size; i++)
        if (t.after(i) != t.root) s.send(t.after(i), output(t.rank));
    for (uint32_t i = 1; i < t.size; i++) s.recv(t.before(i), output(t.before(i)));
    return s;
}

uint32_t rounds_direct(Collective collective, uint32_t P) {
    if (collective == Collective::all_reduce) return P == 1 ? 0 : 2;
    return std::min(P - 1, collective == Collective::broadcast ? 2U : 1U);
}

// All but the owner encode their part of the sum, and the owner the result.
double noise_direct(Collective collective, uint32_t P) {
    if (P == 1) return 0;
    const double parts = (P - 1.0) / P;
    if (collective == Collective::all_reduce) return parts + 1;
    return collective == Collective::reduce_scatter ? parts : 1;
}

} // namespace qccl
