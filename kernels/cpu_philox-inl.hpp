// The noise of stochastic rounding in vectors: computes many blocks of the generator in philox.hpp
// at a time. Compiled once per target.
#if defined(QCCL_CPU_PHILOX_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef QCCL_CPU_PHILOX_INL
#undef QCCL_CPU_PHILOX_INL
#else
#define QCCL_CPU_PHILOX_INL
#endif

#include "kernels/kernels.hpp"
#include "kernels/philox.hpp"

#include <hwy/highway.h>

#include <cstring>

HWY_BEFORE_NAMESPACE();
namespace qccl::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// Each 64-bit lane computes one block of the generator. Each word of its state is in the low half
// of a lane. Products leave garbage in the high half, which the next product does not read.
using Blocks = hn::CappedTag<uint64_t, 8>;
using BlockVector = hn::Vec<Blocks>;

HWY_INLINE BlockVector product(BlockVector word, BlockVector multiplier) {
    const hn::Repartition<uint32_t, Blocks> halves;
    return hn::MulEven(hn::BitCast(halves, word), hn::BitCast(halves, multiplier));
}

// Writes the draws of `count` generator blocks from `block` on, eight draws per block. The function
// writes whole vectors of blocks, also behind the last block.
HWY_INLINE void fill_draws(const Noise &noise, uint64_t block, size_t count, uint16_t *draws) {
    const Blocks d;
    const BlockVector low_half = hn::Set(d, 0xFFFFFFFFU);
    const BlockVector multiplier_0 = hn::Set(d, philox_multiplier_0),
                      multiplier_1 = hn::Set(d, philox_multiplier_1);
    for (size_t i = 0; i < count; i += hn::Lanes(d)) {
        const BlockVector counter = hn::Add(hn::Iota(d, 0), hn::Set(d, block + i));
        BlockVector c0 = counter, c1 = hn::ShiftRight<32>(counter);
        BlockVector c2 = hn::Set(d, noise.call), c3 = hn::Set(d, noise.call >> 32);
        uint32_t k0 = static_cast<uint32_t>(noise.key), k1 = static_cast<uint32_t>(noise.key >> 32);
        for (int round = 0; round < philox_rounds; round++) {
            const BlockVector p0 = product(c0, multiplier_0), p1 = product(c2, multiplier_1);
            c0 = hn::Xor(hn::ShiftRight<32>(p1), hn::Xor(c1, hn::Set(d, uint64_t{k0})));
            c2 = hn::Xor(hn::ShiftRight<32>(p0), hn::Xor(c3, hn::Set(d, uint64_t{k1})));
            c1 = p1;
            c3 = p0;
            k0 += philox_weyl_0;
            k1 += philox_weyl_1;
        }
        const BlockVector low = hn::Or(hn::And(c0, low_half), hn::ShiftLeft<32>(c1));
        const BlockVector high = hn::Or(hn::And(c2, low_half), hn::ShiftLeft<32>(c3));
        HWY_ALIGN uint64_t words[2 * 8];
        hn::StoreInterleaved2(low, high, d, words);
        std::memcpy(draws + i * philox_draws, words, 2 * hn::Lanes(d) * sizeof(uint64_t));
    }
}

} // namespace qccl::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
