// Encoding `int` of b bits: the extreme value of each block, the scales of many blocks at a time,
// the codes. Included once per target.
#if defined(QCCL_CPU_INTEGER_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef QCCL_CPU_INTEGER_INL
#undef QCCL_CPU_INTEGER_INL
#else
#define QCCL_CPU_INTEGER_INL
#endif

#include "kernels/cpu_group-inl.hpp"

#include <bit>

HWY_BEFORE_NAMESPACE();
namespace qccl::HWY_NAMESPACE {

// A float as a number that orders by magnitude, the positive of two equal ones last: the
// magnitude's bits above a bit that says "not negative". Infinities and NaN are above all finite
// numbers.
HWY_INLINE WordVector extreme_key(FloatVector v) {
    const Words dw;
    const WordVector bits = hn::BitCast(dw, v);
#if HWY_TARGET == HWY_AVX3
    return hn::Xor(hn::RotateRight<31>(bits), hn::Set(dw, 1U));
#else
    const Ints di;
    const auto not_negative =
        hn::VecFromMask(di, hn::Gt(hn::BitCast(di, bits), hn::Set(di, -1))); // 0 or -1
    return hn::Sub(hn::Add(bits, bits), hn::BitCast(dw, not_negative));
#endif
}

HWY_INLINE WordVector group_keys(const float *x) {
    WordVector keys = extreme_key(hn::LoadU(Floats(), x));
    for (size_t i = lanes(); i < group_values; i += lanes())
        keys = hn::Max(keys, extreme_key(hn::LoadU(Floats(), x + i)));
    return keys;
}

// Lane i: the largest key of the i-th of 2^depth groups. Neighbouring lanes are merged level by
// level, so that the work per group does not grow with the vector.
template <int depth> HWY_INLINE WordVector keys_of_groups(const float *x) {
    if constexpr (depth == 0) {
        return group_keys(x);
    } else {
        const Words d;
        const WordVector low = keys_of_groups<depth - 1>(x);
        const WordVector high = keys_of_groups<depth - 1>(x + (group_values << (depth - 1)));
        return hn::Max(hn::ConcatEven(d, high, low), hn::ConcatOdd(d, high, low));
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

// The blocks whose scales are computed together.
struct BlockBatch {
    static constexpr size_t most = max_lanes;
    HWY_ALIGN uint32_t keys[most];
    HWY_ALIGN float inverse[most];
    HWY_ALIGN uint16_t wire[most];
    uint32_t exceptional = 0; // bit per block whose scale is none of a plain normal number
};

// s = -m / 2^(b-1), away from zero to bf16, and 1 / s. Not finite, subnormal or nearly overflowing
// scales are left to the reference; a block of zeros has s = 0 and codes 0.
HWY_INLINE void scale_blocks(BlockBatch &batch, uint32_t bits) {
    const Words dw;
    const Floats df;
    const hn::Rebind<uint16_t, Words> narrow;
    batch.exceptional = 0;
    for (size_t i = 0; i < BlockBatch::most; i += lanes()) {
        const WordVector key = hn::Load(dw, batch.keys + i);
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
        hn::Store(hn::IfThenElseZero(is_normal, hn::Div(one, divisor)), df, batch.inverse + i);
        hn::Store(hn::DemoteTo(narrow, hn::BitCast(Ints(), hn::ShiftRight<16>(scale))), narrow,
                  batch.wire + i);
        uint8_t mask[8] = {};
        hn::StoreMaskBits(df, is_exceptional, mask);
        batch.exceptional |= static_cast<uint32_t>(mask[0] | mask[1] << 8) << i;
    }
}

// Encodes again what the fast path left out, block by block.
inline void encode_blocks_by_reference(const ChunkRange &range, const Noise &noise, DataType in,
                                       const void *src, std::byte *payload, const Groups &groups,
                                       size_t first_block, uint32_t blocks) {
    for (; blocks != 0; blocks &= blocks - 1) {
        const size_t block = first_block + static_cast<size_t>(std::countr_zero(blocks));
        const size_t begin = block * groups.per_block * group_values;
        ChunkRange part = range;
        part.begin = range.begin + begin;
        part.count = std::min(groups.per_block * group_values, groups.values - begin);
        scalar_kernels().encode(
            part, noise, in, static_cast<const std::byte *>(src) + begin * type_bytes(in), payload);
    }
}

// The largest keys of the batch that starts at group `begin`.
HWY_INLINE void find_keys(Source &source, size_t begin, size_t end, size_t per_block,
                          BlockBatch &batch) {
    if (per_block == 1) {
        const float *const x = source.tile(begin);
        for (size_t i = 0; i < BlockBatch::most; i += lanes())
            hn::Store(keys_of_groups(x + i * group_values), Words(), batch.keys + i);
        return;
    }
    for (size_t i = 0; begin < end; i++, begin += per_block)
        batch.keys[i] = key_of_block(source, begin, std::min(end, begin + per_block));
}

template <CodeRounding rounding>
void encode_integer(const ChunkRange &range, const Noise &noise, DataType in, const void *src,
                    std::byte *payload) {
    const Groups groups = groups_of(range);
    const uint32_t bits = range.codec->bits;
    Source source(in, src, groups);
    Draws draws(range, noise);
    Codes codes(range, groups, payload);
    BlockBatch batch;
    const Quantiser quantiser{.inverses = batch.inverse,
                              .highest = static_cast<float>((1U << (bits - 1)) - 1)};
    const size_t batch_blocks =
        std::clamp<size_t>(tile_groups / groups.per_block, 1, BlockBatch::most);
    std::byte *const scales =
        payload + range.layout->scales + groups.first_block() * sizeof(uint16_t);
    std::fill(batch.keys, batch.keys + BlockBatch::most, 0U);

    for (size_t block = 0; block < groups.blocks(); block += batch_blocks) {
        const size_t blocks = std::min(batch_blocks, groups.blocks() - block);
        const size_t begin = block * groups.per_block;
        const size_t end = std::min(groups.count, begin + blocks * groups.per_block);
        find_keys(source, begin, end, groups.per_block, batch);
        scale_blocks(batch, bits);
        std::memcpy(scales + block * sizeof(uint16_t), batch.wire, blocks * sizeof(uint16_t));
        quantise_blocks<int8_t, rounding>(source, draws, codes, quantiser, begin, end,
                                          groups.per_block);
        if (const uint32_t exceptional = batch.exceptional & ((1U << blocks) - 1); exceptional != 0)
            encode_blocks_by_reference(range, noise, in, src, payload, groups, block, exceptional);
    }
}

} // namespace qccl::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
