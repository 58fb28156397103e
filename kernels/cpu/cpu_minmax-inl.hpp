// Encodes `minmax` with b bits in fp32: finds the extremes of each bucket, computes the units of
// several buckets at a time and rounds the values to codes. Compiled once per target.
#if defined(QCCL_CPU_MINMAX_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef QCCL_CPU_MINMAX_INL
#undef QCCL_CPU_MINMAX_INL
#else
#define QCCL_CPU_MINMAX_INL
#endif

#include "kernels/cpu/cpu_quantise-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace qccl::HWY_NAMESPACE {

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

HWY_INLINE void find_extremes(Source &source, size_t begin, size_t end, size_t bucket,
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

template <CodeRounding rounding>
void encode_minmax(const ChunkRange &range, const Noise &noise, DataType in, const void *src,
                   std::byte *payload) {
    const Groups groups = groups_of(range);
    const uint32_t bits = range.codec->bits;
    Source source(in, src, groups);
    Draws draws(range, noise);
    Codes codes(range, groups, payload);
    std::byte *const wire =
        payload + range.layout->scales + groups.first_block() * 2 * sizeof(float);
    const auto prepare = [&](const Batch &batch, BucketScales &buckets) HWY_ATTR {
        for (size_t i = 0, g = batch.begin; g < batch.end; i++, g += groups.per_block)
            find_extremes(source, g, std::min(batch.end, g + groups.per_block), i, buckets);
        scale_buckets(buckets, batch.blocks, bits);
        std::memcpy(wire + batch.block * 2 * sizeof(float), buckets.wire,
                    batch.blocks * 2 * sizeof(float));
    };
    const auto quantise = [&](const Batch &batch, const BucketScales &buckets) HWY_ATTR {
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

} // namespace qccl::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
