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
    HWY_ALIGN float sum[most]; // finite only if all values are
    HWY_ALIGN float inverse[most];
    HWY_ALIGN float wire[2 * most]; // minimum and unit of each
    uint32_t exceptional = 0;       // bit per bucket for the reference
};

// Two sets of accumulators, so that one does not wait for the other. A NaN may pass minimum and
// maximum unseen but never the sum.
HWY_INLINE void find_extremes(Source &source, size_t g, size_t end, float &low, float &high,
                              float &sum) {
    const Floats d;
    const size_t step = lanes();
    FloatVector low_a = hn::LoadU(d, source.group(g)), low_b = low_a, high_a = low_a,
                high_b = low_a;
    FloatVector sum_a = hn::Zero(d), sum_b = sum_a;
    for (; g < end; g++) {
        const float *const x = source.group(g);
        for (size_t i = 0; i < group_values; i += 2 * step) {
            const FloatVector a = hn::LoadU(d, x + i), b = hn::LoadU(d, x + i + step);
            low_a = hn::Min(low_a, a);
            low_b = hn::Min(low_b, b);
            high_a = hn::Max(high_a, a);
            high_b = hn::Max(high_b, b);
            sum_a = hn::Add(sum_a, a);
            sum_b = hn::Add(sum_b, b);
        }
    }
    low = hn::GetLane(hn::MinOfLanes(d, hn::Min(low_a, low_b)));
    high = hn::GetLane(hn::MaxOfLanes(d, hn::Max(high_a, high_b)));
    sum = hn::GetLane(hn::SumOfLanes(d, hn::Add(sum_a, sum_b)));
}

// Buckets whose range overflows or that may not be finite are left to the reference. A unit under
// the smallest normal number is 0, and so are the codes then.
HWY_INLINE void scale_buckets(BucketBatch &batch, uint32_t bits) {
    const Floats d;
    batch.exceptional = 0;
    for (size_t i = 0; i < BucketBatch::most; i += lanes()) {
        const FloatVector low = hn::Load(d, batch.low + i), sum = hn::Load(d, batch.sum + i);
        const FloatVector range = hn::Sub(hn::Load(d, batch.high + i), low);
        const FloatVector unit = hn::Div(range, hn::Set(d, static_cast<float>((1U << bits) - 1)));
        const auto is_normal = hn::Ge(unit, hn::Set(d, std::numeric_limits<float>::min()));
        const FloatVector one = hn::Set(d, 1.0F);
        const FloatVector inverse = hn::Div(one, hn::IfThenElse(is_normal, unit, one));
        hn::Store(hn::IfThenElseZero(is_normal, inverse), d, batch.inverse + i);
        hn::StoreInterleaved2(hn::Add(low, hn::Zero(d)), hn::IfThenElseZero(is_normal, unit), d,
                              batch.wire + 2 * i);

        const auto is_plain = hn::And(hn::IsFinite(range), hn::IsFinite(sum));
        uint8_t mask[8] = {};
        hn::StoreMaskBits(d, hn::Not(is_plain), mask);
        batch.exceptional |= static_cast<uint32_t>(mask[0] | mask[1] << 8) << i;
    }
}

template <bool is_stochastic>
void encode_minmax(const ChunkRange &range, const Noise &noise, DataType in, const void *src,
                   std::byte *payload) {
    const Groups groups = groups_of(range);
    const uint32_t bits = range.codec->bits;
    Source source(in, src, groups);
    Codes codes(range, groups, payload);
    Draws draws(range, noise);
    BucketBatch batch = {};
    Quantiser quantiser;
    quantiser.highest = static_cast<float>((1U << bits) - 1);
    const bool clamps = bits != 8 || is_stochastic;
    // The values of a batch stay in the first-level cache between the two passes over them.
    constexpr size_t batch_groups = 4 * tile_groups;
    const size_t batch_buckets =
        std::clamp<size_t>(batch_groups / groups.per_block, 1, BucketBatch::most);
    std::byte *const scales =
        payload + range.layout->scales + groups.first_block() * 2 * sizeof(float);

    for (size_t bucket = 0; bucket < groups.blocks(); bucket += batch_buckets) {
        const size_t buckets = std::min(batch_buckets, groups.blocks() - bucket);
        const size_t begin = bucket * groups.per_block,
                     end = std::min(groups.count, begin + buckets * groups.per_block);
        for (size_t i = 0; i < buckets; i++) {
            const size_t first = begin + i * groups.per_block;
            find_extremes(source, first, std::min(end, first + groups.per_block), batch.low[i],
                          batch.high[i], batch.sum[i]);
        }
        scale_buckets(batch, bits);
        std::memcpy(scales + bucket * 2 * sizeof(float), batch.wire, buckets * 2 * sizeof(float));
        for (size_t i = 0, g = begin; i < buckets; i++) {
            quantiser.offset = batch.wire[2 * i];
            quantiser.inverse = batch.inverse[i];
            for (const size_t bucket_end = std::min(end, g + groups.per_block); g < bucket_end; g++)
                quantise_group<uint8_t, is_stochastic>(quantiser, clamps, source.group(g),
                                                       is_stochastic ? draws.group(g) : nullptr,
                                                       codes.group(g));
        }
        if (const uint32_t exceptional = batch.exceptional & ((1U << buckets) - 1);
            exceptional != 0) {
            codes.flush(end);
            encode_blocks_by_reference(range, noise, in, src, payload, groups, bucket, exceptional);
        }
    }
    codes.flush(groups.count);
}

} // namespace qccl::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
