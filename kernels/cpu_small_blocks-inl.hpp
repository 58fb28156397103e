// Encodes `int` with several blocks per group: computes the scales of a tile's blocks, and
// multiplies each value by the reciprocal of its block's scale. Compiled once per target.
#if defined(QCCL_CPU_SMALL_BLOCKS_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef QCCL_CPU_SMALL_BLOCKS_INL
#undef QCCL_CPU_SMALL_BLOCKS_INL
#else
#define QCCL_CPU_SMALL_BLOCKS_INL
#endif

#include "kernels/cpu_integer-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace qccl::HWY_NAMESPACE {

// Writes the larger of each two neighbours, in order: `count` results.
template <class Read> HWY_INLINE void halve(size_t count, const Read &read, uint32_t *to) {
    const Words d;
    for (size_t i = 0; i < count; i += lanes()) {
        const WordVector low = read(2 * i), high = read(2 * i + lanes());
        hn::StoreU(hn::Max(hn::ConcatEven(d, high, low), hn::ConcatOdd(d, high, low)), d, to + i);
    }
}

// Finds the largest key of each block of a tile.
template <size_t block> HWY_INLINE void find_small_keys(const float *x, uint32_t *keys) {
    static_assert(block >= 4 && tile_values / block >= max_lanes);
    HWY_ALIGN uint32_t level[tile_values / 2];
    const auto of_values = [&](size_t i)
                               HWY_ATTR { return extreme_key(hn::LoadU(Floats(), x + i)); };
    const auto of_level = [&](size_t i) HWY_ATTR { return hn::LoadU(Words(), level + i); };
    halve(tile_values / 2, of_values, level);
    size_t count = tile_values / 4;
    for (; count > tile_values / block; count /= 2) halve(count, of_level, level);
    halve(count, of_level, keys);
}

// Encodes a tile: multiplies its values by their reciprocals and rounds them to codes.
template <class Code, CodeRounding rounding>
HWY_INLINE void quantise_spread(const float *x, const float *inverses, size_t values,
                                FloatVector highest, const uint16_t *draws, uint8_t *dst,
                                uint8_t *high) {
    for (size_t at = 0; at < values; at += group_values) {
        const auto vector = [&](size_t i) HWY_ATTR {
            const FloatVector v =
                hn::Mul(hn::LoadU(Floats(), x + at + i), hn::LoadU(Floats(), inverses + at + i));
            return to_codes<rounding>(v, highest, draws ? draws + at + i : nullptr);
        };
        store_codes<Code, 1>(vector, dst + at, high + at);
    }
}

// Encodes a range tile by tile. The reference encodes groups that the fast path cannot handle, and
// a last group that is not full.
template <size_t block, class Code, CodeRounding rounding>
void encode_small_blocks(const ChunkRange &range, const Noise &noise, DataType in, const void *src,
                         std::byte *payload) {
    constexpr size_t per_group = group_values / block;
    const Groups groups = groups_of(range);
    const uint32_t bits = range.codec->bits;
    const FloatVector highest = hn::Set(Floats(), static_cast<float>((1U << (bits - 1)) - 1));
    Source source(in, src, groups);
    Draws draws(range, noise);
    Codes codes(range, groups, payload);
    ScalesOf<tile_groups * per_group> blocks;
    HWY_ALIGN float inverses[tile_values];
    for (size_t g = 0; g < groups.count; g += tile_groups) {
        const size_t count = std::min(tile_groups, groups.count - g);
        const float *const x = source.tile(g);
        find_small_keys<block>(x, blocks.keys);
        scale_blocks(blocks, count * per_group, bits);
        const uint64_t first = (groups.first + g) * per_group;
        const auto scales =
            std::min<uint64_t>(count * per_group, range.layout->scale_count - first);
        std::memcpy(payload + range.layout->scales + first * sizeof(uint16_t), blocks.wire,
                    scales * sizeof(uint16_t));
        spread<block>(blocks.inverse, count * per_group, inverses);
        const uint16_t *drawn = nullptr;
        if constexpr (rounding == CodeRounding::stochastic) drawn = draws.tile(g, count);
        quantise_spread<Code, rounding>(x, inverses, count * group_values, highest, drawn,
                                        codes.tile(g), codes.high_bytes());
        codes.take(g, count);

        uint32_t exceptional = 0; // bit per group
        for (size_t i = 0; i < count; i++)
            if ((blocks.exceptional >> i * per_group & ((1U << per_group) - 1)) != 0)
                exceptional |= 1U << i;
        if (g + count == groups.count && groups.last_values() < group_values)
            exceptional |= 1U << (count - 1);
        encode_by_reference(range, noise, in, src, payload, groups,
                            {.block = g, .blocks = count, .begin = g, .end = g + count},
                            exceptional);
    }
}

} // namespace qccl::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
