// Lists the kernel tiers that this machine runs and selects the best of them.
#include "kernels/cpu/cpu_tiers.hpp"

#include <array>

namespace qccl {

namespace {

// In the order of Tier, so that the last tier that a mask allows is the best one.
struct Available {
    std::array<const Kernels *, tier_names.size()> kernels{};
    size_t count = 0;

    Available() {
        add(&scalar_kernels());
        add(&generic_kernels());
#if defined(QCCL_NATIVE_KERNELS)
        for (const Kernels *const tier : native_kernels()) add(tier);
#endif
    }
    void add(const Kernels *tier) {
        if (tier != nullptr) kernels[count++] = tier;
    }
};

const Available &available() {
    static const Available tiers;
    return tiers;
}

} // namespace

const Kernels &best_kernels(uint32_t mask) {
    const std::span<const Kernels *const> tiers = available_kernels();
    for (size_t i = tiers.size(); i-- > 0;)
        if ((mask & tier_mask(tiers[i]->tier)) != 0) return *tiers[i];
    return scalar_kernels();
}

std::span<const Kernels *const> available_kernels() {
    return {available().kernels.data(), available().count};
}

} // namespace qccl
