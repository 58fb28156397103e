// Neighbour exchange: each rank exchanges with its two neighbours in turn, first its own part, then
// the two parts that came last. It needs half as many rounds as the ring, and sends as few bytes.
// After J. Chen, L. Zhang, Y. Zhang and W. Yuan, "Performance evaluation of allgather algorithms on
// terascale Linux cluster with fast Ethernet", 2005. An odd number of ranks cannot form pairs:
// there the parts go along the ring.

#include "coll/emitters.hpp"

#include <algorithm>

namespace qccl {

static bool has_pairs(uint32_t ranks) { return ranks % 2 == 0; }

// The ranks at positions 2k and 2k + 1 are a pair, whose parts travel together: after round i a
// rank has the parts of i + 1 pairs, and those that it received last are what its other neighbour
// lacks.
Schedule all_gather_neighbour(const Team &t) {
    if (!has_pairs(t.size)) return all_gather_ring(t, {});
    Schedule s{.chunks = t.size, .outbox = 1};
    const uint32_t own = t.position(t.rank), pairs = t.size / 2;
    const bool is_first = own % 2 == 0; // of its pair
    const uint32_t partner = t.rank_at(own ^ 1U);
    const uint32_t outer = t.rank_at((own + (is_first ? t.size - 1 : 1)) % t.size);
    s.copy(output(t.rank), input(t.rank));
    s.send(partner, output(t.rank));
    s.recv(partner, output(partner));
    uint32_t last = own / 2; // the pair whose parts came last
    for (uint32_t round = 1; round < pairs; round++) {
        // Pairs arrive from both sides in turn: the nearest that is missing, then the next.
        const bool is_outer = round % 2 != 0;
        const uint32_t peer = is_outer ? outer : partner, distance = (round + 1) / 2;
        const bool is_behind = is_first == is_outer;
        const uint32_t next = (own / 2 + (is_behind ? pairs - distance : distance)) % pairs;
        for (const uint32_t at : {2 * last, 2 * last + 1}) s.send(peer, output(t.rank_at(at)));
        for (const uint32_t at : {2 * next, 2 * next + 1}) s.recv(peer, output(t.rank_at(at)));
        last = next;
    }
    return s;
}

uint32_t rounds_neighbour(Collective collective, uint32_t P) {
    return has_pairs(P) ? P / 2 : rounds_ring(collective, P);
}

NoiseMoments noise_neighbour(Collective, uint32_t P) {
    return NoiseMoments::of(std::min(P - 1, 1U));
}

} // namespace qccl
