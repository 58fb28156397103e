// A fair sample of the cases of a table that is too long for every commit; QTEST_FULL=1 takes them
// all.
#pragma once

#include "thinning.hpp"

#include "codec/noise.hpp"

namespace qtest {

struct Sample {
    bool is_full = std::getenv("QTEST_FULL") != nullptr;
    uint64_t cases = 0, taken = 0;

    // One in `rarity` of the cases, spread without a pattern; all of them in a full run.
    bool takes(uint64_t rarity) {
        const bool chosen = is_full || qccl::splitmix64(cases) % (rarity * thinning()) == 0;
        cases++;
        taken += chosen;
        return chosen;
    }
};

} // namespace qtest
