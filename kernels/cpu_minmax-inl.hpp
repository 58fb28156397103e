// Encoding `minmax` of b bits in fp32: the extremes of each bucket, the units of several buckets at
// a time, the codes. Included once per target.
#if defined(QCCL_CPU_MINMAX_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef QCCL_CPU_MINMAX_INL
#undef QCCL_CPU_MINMAX_INL
#else
#define QCCL_CPU_MINMAX_INL
#endif

#include "kernels/cpu_integer-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace qccl::HWY_NAMESPACE {

// The buckets whose units are computed together.
struct BucketBatch {
    static constexpr size_t most = max_lanes;
    HWY_ALIGN float low[most];
    HWY_ALIGN float high[most];
    HWY_ALIGN float inverse[most];
    HWY_ALIGN float wire[2 * most]; // minimum and unit of each
    uint32_t exceptional = 0;       // bit per bucket for the reference
};

HWY_INLINE bool are_finite(Source &source, size_t g, size_t end) {
    const Floats d;
    auto finite = hn::IsFinite(hn::Zero(d));
    for (; g < end; g += tile_groups) {
        const float *const x = source.tile(g);
        const size_t values = std::min(tile_groups, end - g) * group_values;
        for (size_t i = 0; i < values; i += lanes())
            finite = hn::And(finite, hn::IsFinite(hn::LoadU(d, x + i)));
    }
    return hn::AllTrue(d, finite);
}

// Two sets of accumulators, so that one does not wait for the other. A NaN may pass minimum and
// maximum unseen but never `products`, which are rarely not finite otherwise.
HWY_INLINE void find_extremes(Source &source, size_t begin, size_t end, size_t bucket,
                              BucketBatch &batch) {
    const Floats d;
    const size_t step = lanes();
    FloatVector low_a = hn::LoadU(d, source.tile(begin)), low_b = low_a, high_a = low_a,
                high_b = low_a;
    FloatVector products_a = hn::Zero(d), products_b = products_a;
    for (size_t g = begin; g < end; g += tile_groups) {
        const float *const x = source.tile(g);
        const size_t values = std::min(tile_groups, end - g) * group_values;
        const auto take_pair = [&](size_t i, FloatVector &products) HWY_ATTR {
            const FloatVector a = in_register(hn::LoadU(d, x + i));
            const FloatVector b = in_register(hn::LoadU(d, x + i + step));
            low_a = hn::Min(low_a, a);
            low_b = hn::Min(low_b, b);
            high_a = hn::Max(high_a, a);
            high_b = hn::Max(high_b, b);
            products = hn::MulAdd(a, b, products); // defines no bytes
        };
        for (size_t i = 0; i < values; i += std::min(4 * step, size_t{group_values})) {
            take_pair(i, products_a);
            if (4 * step <= group_values) take_pair(i + 2 * step, products_b);
        }
    }
    batch.low[bucket] = hn::GetLane(hn::MinOfLanes(d, hn::Min(low_a, low_b)));
    batch.high[bucket] = hn::GetLane(hn::MaxOfLanes(d, hn::Max(high_a, high_b)));
    const FloatVector products = hn::Add(products_a, products_b);
    if (!hn::AllTrue(d, hn::IsFinite(products)) && !are_finite(source, begin, end))
        batch.exceptional |= 1U << bucket;
}

// Buckets whose range overflows or that may not be finite are left to the reference. A unit under
// the smallest normal number is 0, and so are the codes then.
HWY_INLINE void scale_buckets(BucketBatch &batch, uint32_t bits) {
    const Floats d;
    for (size_t i = 0; i < BucketBatch::most; i += lanes()) {
        const FloatVector low = hn::Load(d, batch.low + i);
        const FloatVector range = hn::Sub(hn::Load(d, batch.high + i), low);
        const FloatVector unit = hn::Div(range, hn::Set(d, static_cast<float>((1U << bits) - 1)));
        const auto is_normal = hn::Ge(unit, hn::Set(d, std::numeric_limits<float>::min()));
        const FloatVector one = hn::Set(d, 1.0F);
        const FloatVector inverse = hn::Div(one, hn::IfThenElse(is_normal, unit, one));
        hn::Store(hn::IfThenElseZero(is_normal, inverse), d, batch.inverse + i);
        hn::StoreInterleaved2(hn::Add(low, hn::Zero(d)), hn::IfThenElseZero(is_normal, unit), d,
                              batch.wire + 2 * i);

        uint8_t mask[8] = {};
        hn::StoreMaskBits(d, hn::Not(hn::IsFinite(range)), mask);
        batch.exceptional |= static_cast<uint32_t>(mask[0] | mask[1] << 8) << i;
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
    BucketBatch batch = {};
    const Quantiser quantiser{.offsets = batch.wire,
                              .inverses = batch.inverse,
                              .highest = static_cast<float>((1U << bits) - 1)};
    // The values of a batch stay in the first-level cache between the two passes over them.
    constexpr size_t batch_groups = 4 * tile_groups;
    const size_t batch_buckets =
        std::clamp<size_t>(batch_groups / groups.per_block, 1, BucketBatch::most);
    std::byte *const scales =
        payload + range.layout->scales + groups.first_block() * 2 * sizeof(float);

    for (size_t bucket = 0; bucket < groups.blocks(); bucket += batch_buckets) {
        const size_t buckets = std::min(batch_buckets, groups.blocks() - bucket);
        const size_t begin = bucket * groups.per_block;
        const size_t end = std::min(groups.count, begin + buckets * groups.per_block);
        batch.exceptional = 0;
        for (size_t i = 0, g = begin; g < end; i++, g += groups.per_block)
            find_extremes(source, g, std::min(end, g + groups.per_block), i, batch);
        scale_buckets(batch, bits);
        std::memcpy(scales + bucket * 2 * sizeof(float), batch.wire, buckets * 2 * sizeof(float));
        quantise_blocks<uint8_t, rounding>(source, draws, codes, quantiser, begin, end,
                                           groups.per_block);
        if (const uint32_t exceptional = batch.exceptional & ((1U << buckets) - 1);
            exceptional != 0)
            encode_blocks_by_reference(range, noise, in, src, payload, groups, bucket, exceptional);
    }
}

} // namespace qccl::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
