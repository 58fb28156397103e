// The tiers that a test looks at: all that run here, or with QTEST_TIER the one it names. Slow
// emulators ask for one.
#pragma once

#include "kernels/kernels.hpp"

#include <cstdlib>
#include <string>
#include <vector>

inline std::vector<const qccl::Kernels *> chosen_tiers() {
    const char *const only = std::getenv("QTEST_TIER");
    std::vector<const qccl::Kernels *> chosen;
    for (const qccl::Kernels *tier : qccl::available_kernels())
        if (only == nullptr || std::string(only) == name(tier->tier)) chosen.push_back(tier);
    return chosen;
}
