// Encodes `int` with b bits: finds the extreme value of each block, computes the scales of many
// blocks at a time and rounds the values to codes. If a group has several blocks, each value is
// multiplied by the reciprocal of its block's scale. Compiled once per target.

#if defined(QCCL_CPU_INTEGER_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef QCCL_CPU_INTEGER_INL
#undef QCCL_CPU_INTEGER_INL
#else
#define QCCL_CPU_INTEGER_INL
#endif

#include "kernels/cpu/cpu_quantise-inl.hpp"

HWY_BEFORE_NAMESPACE();

namespace qccl::HWY_NAMESPACE {

// ---- Blocks of whole groups

// Returns a key that orders floats by magnitude; of two equal magnitudes the positive float has the
// larger key. The key is the magnitude's bits followed by a bit that is 1 for floats that are not
// negative. Infinities and NaN are above all finite numbers.
HWY_INLINE WordVector extreme_key(FloatVector v) {
    const Words dw;
    const WordVector bits = hn::BitCast(dw, v);
#if HWY_TARGET == HWY_AVX3
    return hn::Xor(hn::RotateRight<31>(bits), hn::Set(dw, 1U));
#else
    const Ints di;
    const IntVector minus_one = in_register(hn::Set(di, -1));
    const auto not_negative =
        hn::VecFromMask(di, hn::Gt(hn::BitCast(di, bits), minus_one)); // 0 or -1
    return hn::Sub(hn::Add(bits, bits), hn::BitCast(dw, not_negative));
#endif
}

HWY_INLINE WordVector group_keys(const float *x) {
    WordVector keys = extreme_key(hn::LoadU(Floats(), x));
    for (size_t i = lanes(); i < group_values; i += lanes())
        keys = hn::Max(keys, extreme_key(hn::LoadU(Floats(), x + i)));
    return keys;
}

// Returns the maximum of each two lanes whose numbers differ in bit `level`. Lanes of the result
// with that bit 0 come from `low`, the others from `high`.
template <int level> HWY_INLINE WordVector merge_lanes(WordVector low, WordVector high) {
    const Words d;
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_SSE4
    // Blends run on more ports than shuffles. This needs one shuffle; ConcatEven and ConcatOdd need
    // two.
    const hn::Repartition<uint64_t, Words> wide;
    if constexpr (level == 0) {
        return hn::Max(hn::OddEven(high, low), hn::Shuffle2301(hn::OddEven(low, high)));
    } else if constexpr (level == 1) {
        const auto low_pairs = hn::BitCast(wide, low), high_pairs = hn::BitCast(wide, high);
        return hn::Max(hn::BitCast(d, hn::OddEven(high_pairs, low_pairs)),
                       hn::Shuffle1032(hn::BitCast(d, hn::OddEven(low_pairs, high_pairs))));
    } else if constexpr (level == 2) {
        return hn::Max(hn::OddEvenBlocks(high, low),
                       hn::SwapAdjacentBlocks(hn::OddEvenBlocks(low, high)));
    } else {
        return hn::Max(hn::ConcatUpperLower(d, high, low), hn::ConcatLowerUpper(d, high, low));
    }
#else
    // Every level combines neighbouring lanes and halves the lanes of both vectors. After the last
    // level the results are in the same order.
    return hn::Max(hn::ConcatEven(d, high, low), hn::ConcatOdd(d, high, low));
#endif
}

// Returns the largest key of the i-th of 2^depth groups in lane i. Vectors are merged pair by pair,
// so that the work per group does not grow with the vector.
template <int depth> HWY_INLINE WordVector keys_of_groups(const float *x) {
    if constexpr (depth == 0) {
        return group_keys(x);
    } else {
        const WordVector low = keys_of_groups<depth - 1>(x);
        const WordVector high = keys_of_groups<depth - 1>(x + (group_values << (depth - 1)));
        return merge_lanes<depth - 1>(low, high);
    }
}
HWY_INLINE WordVector keys_of_groups(const float *x) {
#if HWY_HAVE_SCALABLE
    switch (lanes()) {
    case 4: return keys_of_groups<2>(x);
    case 8: return keys_of_groups<3>(x);
    default: return keys_of_groups<4>(x);
    }
#else
    return keys_of_groups<hwy::CeilLog2(hn::MaxLanes(Floats()))>(x);
#endif
}

HWY_INLINE uint32_t key_of_block(Source &source, size_t g, size_t end) {
    WordVector keys = hn::Zero(Words());
    for (; g < end; g += tile_groups) {
        const float *const x = source.tile(g);
        const size_t values = std::min(tile_groups, end - g) * group_values;
        for (size_t i = 0; i < values; i += group_values) keys = hn::Max(keys, group_keys(x + i));
    }
    return hn::GetLane(hn::MaxOfLanes(Words(), keys));
}

// Keys and scales of a batch of blocks.
template <size_t most_blocks> struct ScalesOf {
    static constexpr size_t most = most_blocks;
    HWY_ALIGN uint32_t keys[most] = {};
    HWY_ALIGN float inverse[most];
    HWY_ALIGN uint16_t wire[most];
    uint64_t exceptional = 0; // bit per block that the reference must encode
};
using BlockScales = ScalesOf<max_lanes>;

// Computes s = -m / 2^(b-1), rounded away from zero to bf16, and 1 / s. The reference encodes
// blocks whose scale is not finite, subnormal or close to overflow. A block of zeros has s = 0 and
// codes 0.
template <size_t most>
HWY_INLINE void scale_blocks(ScalesOf<most> &blocks, size_t count, uint32_t bits) {
    const Words dw;
    const Floats df;
    const hn::Rebind<uint16_t, Words> narrow;
    blocks.exceptional = 0;
    for (size_t i = 0; i < count; i += lanes()) {
        const WordVector key = hn::Load(dw, blocks.keys + i);
        const WordVector magnitude = hn::ShiftRight<1>(key);
        const WordVector divided = hn::Sub(magnitude, hn::Set(dw, (bits - 1) << 23));
        const WordVector rounded =
            hn::And(hn::Add(divided, hn::Set(dw, 0xFFFFU)), hn::Set(dw, 0xFFFF0000U));
        const auto is_normal = exceeds(magnitude, (bits << 23) - 1);
        const auto is_too_large = exceeds(rounded, ((256 - bits) << 23) - 1);
        const auto is_zero = hn::Not(exceeds(magnitude, 0));
        const auto is_exceptional =
            hn::Or(hn::AndNot(is_zero, hn::Not(is_normal)), hn::And(is_normal, is_too_large));

        const WordVector signed_scale = hn::Or(rounded, hn::ShiftLeft<31>(key));
        const WordVector scale = choose(is_normal, signed_scale, hn::Zero(dw));
        const FloatVector one = hn::Set(df, 1.0F);
        const FloatVector divisor = hn::IfThenElse(is_normal, hn::BitCast(df, signed_scale), one);
        hn::Store(hn::IfThenElseZero(is_normal, hn::Div(one, divisor)), df, blocks.inverse + i);
        hn::Store(hn::DemoteTo(narrow, hn::BitCast(Ints(), hn::ShiftRight<16>(scale))), narrow,
                  blocks.wire + i);
        uint8_t mask[8] = {};
        hn::StoreMaskBits(df, is_exceptional, mask);
        blocks.exceptional |= static_cast<uint64_t>(mask[0] | mask[1] << 8) << i;
    }
}

// Finds the largest key of each block of a batch.
HWY_INLINE void find_keys(Source &source, const Batch &batch, size_t per_block,
                          BlockScales &blocks) {
    if (per_block == 1) {
        const float *const x = source.tile(batch.begin);
        for (size_t i = 0; i < BlockScales::most; i += lanes())
            hn::Store(keys_of_groups(x + i * group_values), Words(), blocks.keys + i);
        return;
    }
    for (size_t i = 0, g = batch.begin; g < batch.end; i++, g += per_block)
        blocks.keys[i] = key_of_block(source, g, std::min(batch.end, g + per_block));
}

template <class Code, CodeRounding rounding>
void encode_integer(const ChunkRange &range, const Noise &noise, DataType in, const void *src,
                    std::byte *payload) {
    const Groups groups = groups_of(range);
    const uint32_t bits = range.codec->bits;
    Source source(in, src, groups);
    Draws draws(range, noise);
    Codes codes(range, groups, payload);
    std::byte *const wire =
        payload + range.layout->scales + groups.first_block() * sizeof(uint16_t);
    const auto prepare = [&](const Batch &batch, BlockScales &blocks) HWY_ATTR {
        find_keys(source, batch, groups.per_block, blocks);
        scale_blocks(blocks, batch.blocks, bits);
        std::memcpy(wire + batch.block * sizeof(uint16_t), blocks.wire,
                    batch.blocks * sizeof(uint16_t));
    };
    const auto quantise = [&](const Batch &batch, const BlockScales &blocks) HWY_ATTR {
        const Quantiser quantiser{.inverses = blocks.inverse,
                                  .highest = static_cast<float>((1U << (bits - 1)) - 1)};
        quantise_batch<Code, rounding>(source, draws, codes, quantiser, batch, groups.per_block);
        encode_by_reference(range, noise, in, src, payload, groups, batch, blocks.exceptional);
    };
    const size_t batch_blocks =
        std::clamp<size_t>(tile_groups / groups.per_block, 1, BlockScales::most);
    for_each_batch<BlockScales>(groups, batch_blocks, prepare, quantise);
}

// ---- Several blocks per group

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
