// Pairwise: each rank exchanges its parts with two others at a time, those that are as far before
// it as behind it. It sends the same messages as direct, but holds few of them at once, so that it
// can send them in larger segments.

#include "coll/emitters.hpp"

#include <algorithm>

namespace qccl {

// Both parts are sent before one is received, because in place the part that comes from a rank
// takes the place of the part for it.
Schedule all_to_all_pairwise(const Team &t) {
    constexpr uint32_t in_flight = 4; // two exchanges
    Schedule s{.chunks = t.size, .outbox = std::min(t.size - 1, in_flight)};
    const uint32_t own = t.chunk_with(t.rank);
    s.copy(output(own), input(own));
    for (uint32_t i = 1; i <= t.size / 2; i++) {
        const uint32_t behind = t.after(i), before = t.before(i);
        s.send(behind, input(t.chunk_with(behind)));
        if (before != behind) s.send(before, input(t.chunk_with(before)));
        receive_part(s, t, before, before);
        if (before != behind) receive_part(s, t, behind, behind);
    }
    return s;
}

// Each exchange waits for the one before it.
uint32_t rounds_pairwise(Collective, uint32_t P) { return P / 2; }

NoiseMoments noise_of_parts(Collective, uint32_t P) {
    return NoiseMoments::of(1) * ((P - 1.0) / P);
}

} // namespace qccl
