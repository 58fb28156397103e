// Encodes `norm`: computes the norms of several buckets at a time and rounds the values to codes,
// as cpu_quantise-inl.hpp does for `int` and `minmax`. The squares of a bucket are summed by the
// lanes that summed_block.hpp defines. Compiled once per target.
#if defined(QCCL_CPU_NORM_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef QCCL_CPU_NORM_INL
#undef QCCL_CPU_NORM_INL
#else
#define QCCL_CPU_NORM_INL
#endif

#include "kernels/codec/norm_block.hpp"
#include "kernels/cpu/cpu_encode-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace qccl::HWY_NAMESPACE {

static_assert(sum_lanes == group_values);

// Buckets whose norms are computed together.
struct NormScales {
    static constexpr size_t most = max_lanes;
    HWY_ALIGN float measured[most] = {}; // sum of squares, or largest magnitude
    HWY_ALIGN float wire[most];
    HWY_ALIGN float inverse[most];
    uint32_t exceptional = 0; // bit per bucket that the reference must encode
};

// Adds the squares of groups to the sums of the lanes. Enough vectors are summed at a time that
// none waits for itself.
HWY_INLINE void add_squares(const TileGroups &tile, size_t groups, float *sums) {
    const Floats d;
    const auto square = [&](size_t group, size_t lane) HWY_ATTR {
        const FloatVector x = hn::LoadU(d, tile.group(group) + lane);
        return hn::Mul(x, x);
    };
    const size_t step = lanes();
    if (step == group_values / 2) {
        FloatVector a = hn::Load(d, sums), b = hn::Load(d, sums + step);
        for (size_t i = 0; i < groups; i++) {
            a = hn::Add(a, square(i, 0));
            b = hn::Add(b, square(i, step));
        }
        hn::Store(a, d, sums);
        hn::Store(b, d, sums + step);
        return;
    }
    for (size_t at = 0; at < group_values; at += 4 * step) {
        FloatVector a = hn::Load(d, sums + at), b = hn::Load(d, sums + at + step),
                    c = hn::Load(d, sums + at + 2 * step), e = hn::Load(d, sums + at + 3 * step);
        for (size_t i = 0; i < groups; i++) {
            a = hn::Add(a, square(i, at));
            b = hn::Add(b, square(i, at + step));
            c = hn::Add(c, square(i, at + 2 * step));
            e = hn::Add(e, square(i, at + 3 * step));
        }
        hn::Store(a, d, sums + at);
        hn::Store(b, d, sums + at + step);
        hn::Store(c, d, sums + at + 2 * step);
        hn::Store(e, d, sums + at + 3 * step);
    }
}

// Returns the sum of all lanes, in the order of pinned_sum.
HWY_INLINE float sum_of_lanes(float *sums) {
    const hn::CappedTag<float, 4> d;
    for (size_t distance = sum_lanes / 2; distance >= 4; distance /= 2)
        for (size_t lane = 0; lane < distance; lane += hn::Lanes(d))
            hn::Store(hn::Add(hn::Load(d, sums + lane), hn::Load(d, sums + lane + distance)), d,
                      sums + lane);
    return (sums[0] + sums[2]) + (sums[1] + sums[3]);
}

HWY_INLINE float squares_of_bucket(GroupSource &source, const Groups &groups, size_t begin,
                                   size_t end) {
    HWY_ALIGN float sums[sum_lanes] = {};
    for (size_t g = begin; g < end; g += tile_groups)
        add_squares(TileGroups(source, groups, g), std::min(tile_groups, end - g), sums);
    return sum_of_lanes(sums);
}

// Returns the largest magnitude; an infinity or NaN if there is one.
HWY_INLINE float magnitude_of_bucket(GroupSource &source, size_t begin, size_t end) {
    const Words d;
    WordVector largest = hn::Zero(d);
    for (size_t g = begin; g < end; g += tile_groups) {
        const float *const x = source.tile(g); // what pads the last group changes no magnitude
        const size_t values = std::min(tile_groups, end - g) * group_values;
        for (size_t i = 0; i < values; i += lanes())
            largest = hn::Max(largest, magnitude_of(hn::LoadU(Floats(), x + i)));
    }
    return std::bit_cast<float>(hn::GetLane(hn::MaxOfLanes(d, largest)));
}

// Computes the norms of `count` buckets. The reference encodes those that are not finite, very
// small or very large. Of a bucket of zeros the norm is 0, and all codes are 0.
HWY_INLINE void scale_norms(const Codec &codec, NormScales &buckets, size_t count) {
    const Floats d;
    const bool is_l2 = codec.norm == BucketNorm::l2;
    const FloatVector zero = hn::Zero(d), one = hn::Set(d, 1.0F);
    const FloatVector least = hn::Set(
        d, is_l2 ? 0x1p-64F : std::bit_cast<float>(least_norm_bits(codec))); // see needs_lift()
    const FloatVector most = hn::Set(d, is_l2 ? std::numeric_limits<float>::max()
                                              : std::bit_cast<float>(largest_norm_bits));
    const FloatVector levels = hn::Set(d, static_cast<float>(norm_levels(codec.bits)));
    buckets.exceptional = 0;
    for (size_t i = 0; i < count; i += lanes()) {
        const FloatVector measured = hn::Load(d, buckets.measured + i);
        const auto is_usual = hn::And(hn::Ge(measured, least), hn::Le(measured, most));
        FloatVector norm = hn::IfThenElse(is_usual, measured, one);
        if (is_l2) norm = hn::Sqrt(norm);
        const FloatVector factor = codec.levels == Levels::uniform ? hn::Div(norm, levels) : norm;
        hn::Store(hn::IfThenElseZero(is_usual, norm), d, buckets.wire + i);
        hn::Store(hn::IfThenElseZero(is_usual, hn::Div(one, factor)), d, buckets.inverse + i);
        uint8_t mask[8] = {};
        hn::StoreMaskBits(d, hn::Not(hn::Or(is_usual, hn::Eq(measured, zero))), mask);
        buckets.exceptional |= static_cast<uint32_t>(mask[0] | mask[1] << 8) << i;
    }
}

// Fills buckets.measured for the buckets of a batch.
HWY_INLINE void measure_norms(const Codec &codec, GroupSource &source, const Groups &groups,
                              const BlockBatch &batch, NormScales &buckets) {
    for (size_t i = 0, g = batch.begin; g < batch.end; i++, g += groups.per_block) {
        const size_t end = std::min(batch.end, g + groups.per_block);
        float &measured = buckets.measured[i];
        if (codec.norm == BucketNorm::linf) {
            measured = magnitude_of_bucket(source, g, end);
            continue;
        }
        measured = squares_of_bucket(source, groups, g, end);
        // Squares may have vanished: a number that is neither usual nor zero says so.
        if (measured == 0 && magnitude_of_bucket(source, g, end) != 0)
            measured = std::numeric_limits<float>::min();
    }
}

template <SimdRounding rounding>
void encode_norm(const ChunkRange &range, const Noise &noise, DataType in, const void *src,
                 std::byte *payload) {
    const Codec &codec = *range.codec;
    const Groups groups = groups_of(range);
    GroupSource source(in, src, groups);
    Draws draws(range, noise);
    Codes codes(range, groups, payload);
    std::byte *const wire = payload + range.layout->scales + groups.first_block() * sizeof(float);
    const auto prepare = [&](const BlockBatch &batch, NormScales &buckets) HWY_ATTR {
        measure_norms(codec, source, groups, batch, buckets);
        scale_norms(codec, buckets, batch.blocks);
        std::memcpy(wire + batch.block * sizeof(float), buckets.wire, batch.blocks * sizeof(float));
    };
    const auto quantise = [&](const BlockBatch &batch, const NormScales &buckets) HWY_ATTR {
        const Quantiser quantiser{.inverses = buckets.inverse,
                                  .highest = static_cast<float>(norm_levels(codec.bits))};
        quantise_batch<int8_t, rounding>(source, draws, codes, quantiser, batch, groups.per_block);
        encode_by_reference(range, noise, in, src, payload, groups, batch, buckets.exceptional);
    };
    // The values of a batch stay in the first-level cache between the two passes over them.
    constexpr size_t batch_groups = 4 * tile_groups;
    const size_t batch_buckets =
        std::clamp<size_t>(batch_groups / groups.per_block, 1, NormScales::most);
    for_each_batch<NormScales>(groups, batch_buckets, prepare, quantise);
}

HWY_INLINE void encode_norm(const ChunkRange &range, const Noise &noise, DataType in,
                            const void *src, std::byte *payload) {
    const bool is_uniform = range.codec->levels == Levels::uniform;
    if (range.codec->rounding == Rounding::stochastic)
        return is_uniform
                   ? encode_norm<SimdRounding::stochastic_symmetric>(range, noise, in, src, payload)
                   : encode_norm<SimdRounding::powers_stochastic>(range, noise, in, src, payload);
    if (is_uniform)
        encode_norm<SimdRounding::nearest_saturating>(range, noise, in, src, payload);
    else
        encode_norm<SimdRounding::powers>(range, noise, in, src, payload);
}

} // namespace qccl::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
