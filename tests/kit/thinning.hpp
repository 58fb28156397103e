// Thins out the long tables of cases for slow emulators and checkers: with QTEST_EVERY=n, a test
// takes one case in n.
#pragma once

#include "codec/codec.hpp"

#include <cstdint>
#include <cstdlib>

inline size_t thinning() {
    static const char *const every = std::getenv("QTEST_EVERY");
    static const size_t step = every != nullptr ? std::strtoul(every, nullptr, 10) : 1;
    return step == 0 ? 1 : step;
}

// Spread without a pattern, because the tables repeat types and inputs at fixed distances.
inline bool is_chosen(uint64_t number) { return qccl::splitmix64(number) % thinning() == 0; }
