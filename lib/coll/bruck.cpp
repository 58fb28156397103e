// Bruck: in round k every rank exchanges with the ranks at distance 2^k, and forwards what it got
// in the rounds before. It needs the fewest rounds and the fewest peers with any number of ranks.
// An all-gather sends as few bytes as the ring. In an all-to-all a part travels once for each bit
// of its distance, so that it is for small parts, which travel together.

#include "coll/emitters.hpp"
#include "coll/groups.hpp"

#include <algorithm>
#include <bit>

namespace qccl {

// After round k a rank has the chunks of the 2^(k+1) ranks from itself on.
Schedule all_gather_bruck(const Team &t) {
    Schedule s{.chunks = t.size, .outbox = std::min(t.size - 1, 1U)};
    s.copy(output(t.rank), input(t.rank));
    for (uint32_t distance = 1; distance < t.size; distance *= 2) {
        const uint32_t chunks = std::min(distance, t.size - distance);
        for (uint32_t i = 0; i < chunks; i++) s.send(t.before(distance), output(t.after(i)));
        for (uint32_t i = 0; i < chunks; i++)
            s.recv(t.after(distance), output(t.after(distance + i)));
    }
    return s;
}

// A part that has to go `way` ranks round the team goes the distances of the bits of `way`, from
// the lowest on. Results are stored at the end: in place, a result takes the place of a part that
// may have to be sent in a later round.
Schedule all_to_all_bruck(const Team &t) {
    Schedule s{.chunks = t.size, .outbox = t.size - 1};
    std::vector<Slot> held(t.size); // by way: the part that is here now
    const auto gone = [](uint32_t way, uint32_t distance) { return way & (distance - 1); };
    // The chunk of a part that has gone `past` ranks of its way to this rank.
    const auto chunk_of = [&](uint32_t way, uint32_t past) {
        const uint32_t giver = t.before(past);
        return chunk_between(t, giver, (giver + way) % t.size);
    };
    for (uint32_t distance = 1; distance < t.size; distance *= 2) {
        for (uint32_t way = distance; way < t.size; way++) {
            if ((way & distance) == 0) continue;
            const uint32_t past = gone(way, distance);
            const uint32_t chunk = chunk_of(way, past);
            s.send(t.after(distance), past == 0 ? input(chunk) : held[way], chunk);
        }
        for (uint32_t way = distance; way < t.size; way++) {
            if ((way & distance) == 0) continue;
            held[way] = wire(s.wires);
            s.recv(t.before(distance), held[way], chunk_of(way, gone(way, 2 * distance)));
        }
    }
    const uint32_t own = t.chunk_with(t.rank);
    s.copy(output(own), input(own));
    for (uint32_t way = 1; way < t.size; way++)
        s.copy(output(t.chunk_with(t.before(way))), held[way]);
    return s;
}

uint32_t rounds_bruck(Collective, uint32_t P) {
    return static_cast<uint32_t>(std::bit_width(P - 1));
}

NoiseMoments noise_bruck(Collective collective, uint32_t P) {
    return collective == Collective::all_gather ? NoiseMoments::of(std::min(P - 1, 1U))
                                                : noise_of_parts(collective, P);
}

} // namespace qccl
