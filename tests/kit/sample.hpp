// Selects a fair sample of the cases of a table that is too long to run at every commit;
// QTEST_FULL=1 selects all.
#pragma once

#include "thinning.hpp"

#include "codec/codec.hpp"

namespace qtest {

struct Sample {
    bool is_full = std::getenv("QTEST_FULL") != nullptr;
    uint64_t cases = 0, taken = 0;

    // Takes one in `rarity` of the cases, spread without a pattern; in a full run all of them.
    bool takes(uint64_t rarity) { return takes_of_few(rarity * thinning()); }
    // The same of a table so short that thinning would leave nothing of it.
    bool takes_of_few(uint64_t rarity) {
        const bool chosen = is_full || qccl::splitmix64(cases) % rarity == 0;
        cases++;
        taken += chosen;
        return chosen;
    }
};

} // namespace qtest
