// Encodes the codecs whose blocks share a scale. Compiled once per target.
//
// `int` with b bits: finds the extreme value of each block, computes the scales of many blocks at a
// time and rounds the values to codes. If a group has several blocks, each value is multiplied by
// the reciprocal of its block's scale.
// `minmax` with b bits in fp32: finds the extremes of each bucket, computes the units of several
// buckets at a time and rounds the values to codes.
// The MX codecs and `nvfp4`, whose codes are small floats. MX: finds the largest magnitude of each
// block, which is a group, and rounds the block's values to the grid of small floats. nvfp4:
// computes the base of each bucket from its largest magnitude, then the scales and codes of the two
// blocks of each group.
// `tbq` compares each value with the threshold.

#if defined(QCCL_CPU_ENCODE_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef QCCL_CPU_ENCODE_INL
#undef QCCL_CPU_ENCODE_INL
#else
#define QCCL_CPU_ENCODE_INL
#endif

#include "kernels/codec/small_float_block.hpp"
#include "kernels/codec/threshold_block.hpp"
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

HWY_INLINE uint32_t key_of_block(GroupSource &source, size_t g, size_t end) {
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
HWY_INLINE void find_keys(GroupSource &source, const BlockBatch &batch, size_t per_block,
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

template <class Code, SimdRounding rounding>
void encode_integer(const ChunkRange &range, const Noise &noise, DataType in, const void *src,
                    std::byte *payload) {
    const Groups groups = groups_of(range);
    const uint32_t bits = range.codec->bits;
    GroupSource source(in, src, groups);
    Draws draws(range, noise);
    Codes codes(range, groups, payload);
    std::byte *const wire =
        payload + range.layout->scales + groups.first_block() * sizeof(uint16_t);
    const auto prepare = [&](const BlockBatch &batch, BlockScales &blocks) HWY_ATTR {
        find_keys(source, batch, groups.per_block, blocks);
        scale_blocks(blocks, batch.blocks, bits);
        std::memcpy(wire + batch.block * sizeof(uint16_t), blocks.wire,
                    batch.blocks * sizeof(uint16_t));
    };
    const auto quantise = [&](const BlockBatch &batch, const BlockScales &blocks) HWY_ATTR {
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
template <class Code, SimdRounding rounding>
HWY_INLINE void quantise_spread(const float *x, const float *inverses, size_t values,
                                FloatVector highest, const uint16_t *draws, uint8_t *dst,
                                uint8_t *high) {
    for (size_t at = 0; at < values; at += group_values) {
        const auto vector = [&](size_t i) HWY_ATTR {
            const FloatVector v =
                hn::Mul(hn::LoadU(Floats(), x + at + i), hn::LoadU(Floats(), inverses + at + i));
            return to_codes<Code, rounding>(v, highest, draws ? draws + at + i : nullptr);
        };
        store_codes<Code, 1>(vector, dst + at, high + at);
    }
}

// Encodes a range tile by tile. The reference encodes groups that the fast path cannot handle, and
// a last group that is not full.
template <size_t block, class Code, SimdRounding rounding>
void encode_small_blocks(const ChunkRange &range, const Noise &noise, DataType in, const void *src,
                         std::byte *payload) {
    constexpr size_t per_group = group_values / block;
    const Groups groups = groups_of(range);
    const uint32_t bits = range.codec->bits;
    const FloatVector highest = hn::Set(Floats(), static_cast<float>((1U << (bits - 1)) - 1));
    GroupSource source(in, src, groups);
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
        if constexpr (is_drawn(rounding)) drawn = draws.tile(g, count);
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

// ---- minmax

// Buckets whose units are computed together. Floats are compared as integers, which runs on more
// ports, needs no check for NaN and orders -0 below +0. As unsigned numbers, negative floats are
// above all others and are ordered by magnitude.
struct BucketScales {
    static constexpr size_t most = max_lanes;
    HWY_ALIGN int32_t greatest[most] = {}; // largest, compared as signed numbers
    HWY_ALIGN uint32_t highest[most] = {}; // largest, compared as unsigned numbers
    HWY_ALIGN uint32_t lowest[most] = {};
    HWY_ALIGN float inverse[most];
    HWY_ALIGN float wire[2 * most]; // minimum and unit of each bucket
    uint32_t exceptional = 0;       // bit per bucket that the reference must encode
};

HWY_INLINE void find_extremes(GroupSource &source, size_t begin, size_t end, size_t bucket,
                              BucketScales &buckets) {
    const Ints di;
    const Words dw;
    const size_t step = lanes();
    IntVector greatest = hn::Set(di, INT32_MIN);
    WordVector highest = hn::Zero(dw), lowest = hn::Set(dw, UINT32_MAX);
    for (size_t g = begin; g < end; g += tile_groups) {
        const float *const x = source.tile(g);
        const size_t values = std::min(tile_groups, end - g) * group_values;
        const auto take_pair = [&](size_t i) HWY_ATTR {
            const FloatVector a = in_register(hn::LoadU(Floats(), x + i));
            const FloatVector b = in_register(hn::LoadU(Floats(), x + i + step));
            greatest = hn::Max(greatest, hn::Max(hn::BitCast(di, a), hn::BitCast(di, b)));
            highest = hn::Max(highest, hn::Max(hn::BitCast(dw, a), hn::BitCast(dw, b)));
            lowest = hn::Min(lowest, hn::Min(hn::BitCast(dw, a), hn::BitCast(dw, b)));
        };
        for (size_t i = 0; i < values; i += group_values)
            for (size_t j = 0; j < group_values; j += 2 * step) take_pair(i + j);
    }
    buckets.greatest[bucket] = hn::GetLane(hn::MaxOfLanes(di, greatest));
    buckets.highest[bucket] = hn::GetLane(hn::MaxOfLanes(dw, highest));
    buckets.lowest[bucket] = hn::GetLane(hn::MinOfLanes(dw, lowest));
}

// Computes the units of `count` buckets. The reference encodes buckets that are not finite or whose
// range overflows. A unit below the smallest normal number becomes 0, and all codes are 0 then.
HWY_INLINE void scale_buckets(BucketScales &buckets, size_t count, uint32_t bits) {
    const Floats d;
    const Ints di;
    const Words dw;
    buckets.exceptional = 0;
    for (size_t i = 0; i < count; i += lanes()) {
        const IntVector greatest = hn::Load(di, buckets.greatest + i);
        const WordVector highest = hn::Load(dw, buckets.highest + i),
                         lowest = hn::Load(dw, buckets.lowest + i);
        const auto all_negative = hn::RebindMask(dw, hn::Lt(greatest, hn::Zero(di)));
        const auto none_negative =
            hn::RebindMask(dw, hn::Gt(hn::BitCast(di, highest), hn::Set(di, -1)));
        const FloatVector high =
            hn::BitCast(d, hn::IfThenElse(all_negative, lowest, hn::BitCast(dw, greatest)));
        const FloatVector low = hn::BitCast(d, hn::IfThenElse(none_negative, lowest, highest));

        const FloatVector range = hn::Sub(high, low);
        const FloatVector unit = hn::Div(range, hn::Set(d, static_cast<float>((1U << bits) - 1)));
        const auto is_normal = hn::Ge(unit, hn::Set(d, std::numeric_limits<float>::min()));
        const FloatVector one = hn::Set(d, 1.0F);
        const FloatVector inverse = hn::Div(one, hn::IfThenElse(is_normal, unit, one));
        hn::Store(hn::IfThenElseZero(is_normal, inverse), d, buckets.inverse + i);
        hn::StoreInterleaved2(hn::Add(low, hn::Zero(d)), hn::IfThenElseZero(is_normal, unit), d,
                              buckets.wire + 2 * i);
        // If an extreme is not finite, the range is not finite either.
        uint8_t mask[8] = {};
        hn::StoreMaskBits(d, hn::Not(hn::IsFinite(range)), mask);
        buckets.exceptional |= static_cast<uint32_t>(mask[0] | mask[1] << 8) << i;
    }
}

template <SimdRounding rounding>
void encode_minmax(const ChunkRange &range, const Noise &noise, DataType in, const void *src,
                   std::byte *payload) {
    const Groups groups = groups_of(range);
    const uint32_t bits = range.codec->bits;
    GroupSource source(in, src, groups);
    Draws draws(range, noise);
    Codes codes(range, groups, payload);
    std::byte *const wire =
        payload + range.layout->scales + groups.first_block() * 2 * sizeof(float);
    const auto prepare = [&](const BlockBatch &batch, BucketScales &buckets) HWY_ATTR {
        for (size_t i = 0, g = batch.begin; g < batch.end; i++, g += groups.per_block)
            find_extremes(source, g, std::min(batch.end, g + groups.per_block), i, buckets);
        scale_buckets(buckets, batch.blocks, bits);
        std::memcpy(wire + batch.block * 2 * sizeof(float), buckets.wire,
                    batch.blocks * 2 * sizeof(float));
    };
    const auto quantise = [&](const BlockBatch &batch, const BucketScales &buckets) HWY_ATTR {
        const Quantiser quantiser{.offsets = buckets.wire,
                                  .inverses = buckets.inverse,
                                  .highest = static_cast<float>((1U << bits) - 1)};
        quantise_batch<uint8_t, rounding>(source, draws, codes, quantiser, batch, groups.per_block);
        encode_by_reference(range, noise, in, src, payload, groups, batch, buckets.exceptional);
    };
    // The values of a batch stay in the first-level cache between the two passes over them.
    constexpr size_t batch_groups = 4 * tile_groups;
    const size_t batch_buckets =
        std::clamp<size_t>(batch_groups / groups.per_block, 1, BucketScales::most);
    for_each_batch<BucketScales>(groups, batch_buckets, prepare, quantise);
}

// ---- MX

// Returns the bit pattern of the largest magnitude of `count` values.
template <size_t count> HWY_INLINE uint32_t largest_pattern(const float *x) {
    const Words d;
    WordVector largest = magnitude_of(hn::LoadU(Floats(), x));
    for (size_t i = lanes(); i < count; i += lanes())
        largest = hn::Max(largest, magnitude_of(hn::LoadU(Floats(), x + i)));
    return hn::GetLane(hn::MaxOfLanes(d, largest));
}

// element_code() of small_float_block.hpp for lanes() values.
template <class F, bool is_drawn>
HWY_INLINE IntVector element_codes(FloatVector v, [[maybe_unused]] const uint16_t *draws) {
    const Words d;
    constexpr uint32_t lowest = 128 - element_bias<F>;
    const WordVector magnitude = magnitude_of(v);
    const WordVector field = hn::Max(hn::ShiftRight<23>(magnitude), hn::Set(d, lowest));
    const WordVector steps_in_one =
        hn::ShiftLeft<23>(hn::Sub(hn::Set(d, 254U + F::fraction_bits), field));
    FloatVector steps =
        hn::Mul(hn::BitCast(Floats(), magnitude), hn::BitCast(Floats(), steps_in_one));
    if constexpr (is_drawn) steps = hn::Floor(hn::Add(steps, unit_noise(draws)));
    const WordVector rounded = hn::BitCast(d, to_integers(steps));
    const WordVector code =
        hn::Add(hn::ShiftLeft<F::fraction_bits>(hn::Sub(field, hn::Set(d, lowest))), rounded);
    constexpr int places = hwy::CeilLog2(0x80000000U / F::sign);
    const WordVector sign = hn::And(hn::ShiftRight<places>(hn::BitCast(d, v)), hn::Set(d, F::sign));
    return hn::BitCast(Ints(), hn::Or(hn::Min(code, hn::Set(d, F::largest)), sign));
}

// Encodes a group under one scale, whose reciprocal is `inverse`; 0: every code is 0.
template <class F, bool is_drawn>
HWY_INLINE void encode_elements(const float *x, float inverse, const uint16_t *draws,
                                uint8_t *bytes) {
    if (inverse == 0) {
        std::fill_n(bytes, group_values, uint8_t{0});
        return;
    }
    const FloatVector factor = hn::Set(Floats(), inverse);
    const auto vector = [&](size_t j) HWY_ATTR {
        const FloatVector v = hn::Mul(hn::LoadU(Floats(), x + j), factor);
        return element_codes<F, is_drawn>(v, is_drawn ? draws + j : nullptr);
    };
    store_bytes<uint8_t, 1>(vector, bytes);
}

template <class F, bool is_drawn>
void encode_mx(const ChunkRange &range, const Noise &noise, DataType in, const void *src,
               std::byte *payload) {
    const Groups groups = groups_of(range);
    const bool rounds_up = range.codec->scaling == Scaling::ceil;
    GroupSource source(in, src, groups);
    Draws draws(range, noise);
    Codes codes(range, groups, payload);
    std::byte *const wire = payload + range.layout->scales + groups.first;
    for (size_t g = 0; g < groups.count; g += tile_groups) {
        const size_t count = std::min(tile_groups, groups.count - g);
        const float *const x = source.tile(g);
        const uint16_t *drawn = nullptr;
        if constexpr (is_drawn) drawn = draws.tile(g, count);
        uint8_t *const bytes = codes.tile(g);
        for (size_t i = 0; i < count; i++) {
            const size_t at = i * group_values;
            const MxScale scale = mx_scale<F>(largest_pattern<group_values>(x + at), rounds_up);
            wire[g + i] = static_cast<std::byte>(scale.wire);
            encode_elements<F, is_drawn>(x + at, scale.has_codes ? scale.inverse : 0.0F,
                                         is_drawn ? drawn + at : nullptr, bytes + at);
        }
        codes.take(g, count);
    }
}

template <class F>
void encode_mx(const ChunkRange &range, const Noise &noise, DataType in, const void *src,
               std::byte *payload) {
    if (range.codec->rounding == Rounding::stochastic)
        encode_mx<F, true>(range, noise, in, src, payload);
    else
        encode_mx<F, false>(range, noise, in, src, payload);
}

// ---- nvfp4

static_assert(group_values == 2 * nvfp4_block_values);

// The groups of a tile. The range's last group is padded with zeros, which change no magnitude.
class TileGroups {
public:
    TileGroups(GroupSource &source, const Groups &groups, size_t g)
        : x_(source.tile(g)), last_(groups.count - g - 1) {
        if (last_ >= tile_groups) return;
        std::fill_n(std::copy_n(x_ + last_ * group_values, groups.last_values(), filled_),
                    group_values - groups.last_values(), 0.0F);
    }
    HWY_INLINE const float *group(size_t i) const {
        return i == last_ ? filled_ : x_ + i * group_values;
    }

private:
    const float *x_;
    size_t last_;
    HWY_ALIGN float filled_[group_values];
};

HWY_INLINE uint32_t largest_of_bucket(GroupSource &source, const Groups &groups, size_t begin,
                                      size_t end) {
    uint32_t largest = 0;
    for (size_t g = begin; g < end; g += tile_groups) {
        const TileGroups tile(source, groups, g);
        for (size_t i = 0; i < std::min(tile_groups, end - g); i++)
            for (const size_t half : {size_t{0}, size_t{nvfp4_block_values}}) {
                const uint32_t here = largest_pattern<nvfp4_block_values>(tile.group(i) + half);
                if (here < float_infinity) largest = std::max(largest, here);
            }
    }
    return largest;
}

template <bool is_drawn>
void encode_nvfp4(const ChunkRange &range, const Noise &noise, DataType in, const void *src,
                  std::byte *payload) {
    const Groups groups = groups_of(range);
    const bool rounds_up = range.codec->scaling == Scaling::ceil;
    GroupSource source(in, src, groups);
    Draws draws(range, noise);
    Codes codes(range, groups, payload);
    const auto encode_group = [&](size_t g, const float *x, const uint16_t *drawn,
                                  const Nvfp4Base &base, uint8_t *bytes) HWY_ATTR {
        Nvfp4Scale scales[2];
        for (size_t half = 0; half < 2; half++) {
            const uint64_t block = 2 * (groups.first + g) + half;
            scales[half] =
                nvfp4_scale(largest_pattern<nvfp4_block_values>(x + half * nvfp4_block_values),
                            base, rounds_up);
            if (block < range.layout->scale_count)
                store_bits(payload + range.layout->scales, block, scales[half].wire);
        }
        const auto vector = [&](size_t j) HWY_ATTR {
            const float inverse = scales[j / nvfp4_block_values].inverse;
            if (inverse == 0) return hn::Zero(Ints());
            const FloatVector v = hn::Mul(hn::LoadU(Floats(), x + j), hn::Set(Floats(), inverse));
            return element_codes<E2m1, is_drawn>(v, is_drawn ? drawn + j : nullptr);
        };
        store_bytes<uint8_t, 1>(vector, bytes);
    };
    for (size_t begin = 0; begin < groups.count; begin += groups.per_block) {
        const size_t end = std::min(groups.count, begin + groups.per_block);
        const Nvfp4Base base = nvfp4_base(largest_of_bucket(source, groups, begin, end));
        store_bits(payload + range.layout->bases, (groups.first + begin) / groups.per_block,
                   base.wire);
        for (size_t g = begin; g < end; g += tile_groups) {
            const size_t count = std::min(tile_groups, end - g);
            const TileGroups tile(source, groups, g);
            const uint16_t *drawn = is_drawn ? draws.tile(g, count) : nullptr;
            uint8_t *const bytes = codes.tile(g);
            for (size_t i = 0; i < count; i++)
                encode_group(g + i, tile.group(i), is_drawn ? drawn + i * group_values : nullptr,
                             base, bytes + i * group_values);
            codes.take(g, count);
        }
    }
}

// ---- tbq

inline void encode_tbq(const ChunkRange &range, DataType in, const void *src, std::byte *payload) {
    const Floats d;
    const Ints di;
    const Groups groups = groups_of(range);
    GroupSource source(in, src, groups);
    Codes codes(range, groups, payload);
    const FloatVector threshold = hn::Set(d, range.codec->threshold), negative = hn::Neg(threshold);
    for (size_t g = 0; g < groups.count; g += tile_groups) {
        const size_t count = std::min(tile_groups, groups.count - g);
        const float *const x = source.tile(g);
        uint8_t *const bytes = codes.tile(g);
        for (size_t at = 0; at < count * group_values; at += group_values) {
            const auto vector = [&](size_t i) HWY_ATTR {
                const FloatVector v = hn::LoadU(d, x + at + i);
                const auto is_above = hn::RebindMask(di, hn::Ge(v, threshold)),
                           is_below = hn::RebindMask(di, hn::Le(v, negative)),
                           is_strange = hn::RebindMask(di, hn::Not(hn::IsFinite(v)));
                const IntVector code = hn::IfThenElse(is_above, hn::Set(di, 1),
                                                      hn::IfThenElseZero(is_below, hn::Set(di, 3)));
                return hn::IfThenElse(is_strange, hn::Set(di, int32_t{tbq_nan_code}), code);
            };
            store_bytes<uint8_t, 1>(vector, bytes + at);
        }
        codes.take(g, count);
    }
}

} // namespace qccl::HWY_NAMESPACE

HWY_AFTER_NAMESPACE();
#endif
