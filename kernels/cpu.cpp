// Which tiers this machine runs, and the best of them. Knows no arithmetic.
#include "kernels/cpu.hpp"

#include <array>

namespace qccl {
namespace {

// In the order of Tier, so that the last one that a mask allows is the best.
struct Available {
    std::array<TierKernels, 8> tiers{};
    std::array<const Kernels *, 8> kernels{};
    size_t count = 0;

    Available() {
        add({Tier::scalar, &scalar_kernels()});
        add({Tier::generic, &generic_kernels()});
#if defined(QCCL_NATIVE_KERNELS)
        for (const TierKernels &tier : native_kernels()) add(tier);
#endif
    }
    void add(const TierKernels &tier) {
        if (tier.kernels == nullptr) return;
        tiers[count] = tier;
        kernels[count++] = tier.kernels;
    }
};

const Available &available() {
    static const Available tiers;
    return tiers;
}

} // namespace

const Kernels &best_kernels(uint32_t mask) {
    const Available &tiers = available();
    for (size_t i = tiers.count; i-- > 0;)
        if ((mask & tier_mask(tiers.tiers[i].tier)) != 0) return *tiers.kernels[i];
    return scalar_kernels();
}

std::span<const Kernels *const> available_kernels() {
    return {available().kernels.data(), available().count};
}

} // namespace qccl
