// The CPU's tiers that tests run: all that this processor supports, or the one that QTEST_TIER
// names. Slow emulators of processors ask for one.
#include "kernels/cpu/cpu_tiers.hpp"
#include "tested_kernels.hpp"

#include <cstdlib>

static std::vector<TestedKernels> chosen_tiers() {
    const char *const only = std::getenv("QTEST_TIER");
    std::vector<TestedKernels> chosen;
    for (const qccl::Kernels *tier : qccl::available_kernels())
        if (only == nullptr || std::string(only) == name(tier->tier))
            chosen.push_back({name(tier->tier), tier, [](const qccl::Codec &) { return true; }});
    return chosen;
}

const std::vector<TestedKernels> &tested_kernels() {
    static const std::vector<TestedKernels> chosen = chosen_tiers();
    return chosen;
}
