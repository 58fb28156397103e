// Encodes and decodes `onebit`, whose scales come from sums over a bucket. The order of the sums is
// that of summed_block.hpp: each of 32 lanes adds every 32nd value, and then the lanes add up
// pairwise. The lanes lie side by side in vectors, so that the vectors add in the order of the
// reference. Any thread may call; nothing blocks. Compiled once per target.

#if defined(QCCL_CPU_SUMMED_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef QCCL_CPU_SUMMED_INL
#undef QCCL_CPU_SUMMED_INL
#else
#define QCCL_CPU_SUMMED_INL
#endif

#include "base/sizes.hpp"
#include "kernels/codec/summed_block.hpp"
#include "kernels/cpu/cpu_quantise-inl.hpp"

#include <bit>

HWY_BEFORE_NAMESPACE();

namespace qccl::HWY_NAMESPACE {

// ---- Sums

static_assert(sum_lanes == group_values);

// Adds up the sums of the lanes as pinned_sum() does.
HWY_INLINE float sum_of_lanes(const float *sums) {
    const hn::CappedTag<float, 4> d;
    constexpr size_t step = 4;
    if (hn::Lanes(d) != step) return pinned_sum(sum_lanes, [&](uint64_t i) { return sums[i]; });
    const auto quarter = [&](size_t i) HWY_ATTR { // of 16 sums
        const float *const at = sums + i * step;
        return hn::Add(hn::LoadU(d, at), hn::LoadU(d, at + sum_lanes / 2));
    };
    HWY_ALIGN float left[step];
    hn::Store(hn::Add(hn::Add(quarter(0), quarter(2)), hn::Add(quarter(1), quarter(3))), d, left);
    return (left[0] + left[2]) + (left[1] + left[3]);
}

// Provides the values of a range as fp32, at most a tile at a time, with zeros up to the end of the
// last group.
class PaddedSource {
public:
    PaddedSource(DataType in, const void *src)
        : src_(static_cast<const std::byte *>(src)), in_(in) {}

    HWY_INLINE const float *values(uint64_t from, size_t count) {
        if (in_ == DataType::float32 && count % group_values == 0)
            return reinterpret_cast<const float *>(src_) + from;
        return converted(from, count);
    }

private:
    HWY_NOINLINE const float *converted(uint64_t from, size_t count) {
        copy(DataType::float32, buffer_, in_, src_ + from * type_bytes(in_), count, false);
        std::fill(buffer_ + count, buffer_ + round_up(count, group_values), 0.0F);
        return buffer_;
    }

    const std::byte *src_;
    DataType in_;
    HWY_ALIGN float buffer_[tile_values];
};

// ---- onebit

// The sums of a bucket's values from zero up and of its negative values, by lanes, and the number
// of the latter.
struct SignSums {
    HWY_ALIGN float usual[sum_lanes] = {};
    HWY_ALIGN float negative[sum_lanes] = {};
    uint64_t negatives = 0;
};

// Adds the values of groups to the sums, and writes their codes to the plane. A lane's sum is never
// -0, so a zero in the place of a value of the other code leaves it as it is.
HWY_INLINE void add_signs(const float *x, size_t groups, SignSums &sums, uint8_t *plane) {
    const Floats d;
    const size_t step = lanes();
    for (size_t j = 0; j < group_values; j += 2 * step) {
        FloatVector usual_a = hn::Load(d, sums.usual + j),
                    usual_b = hn::Load(d, sums.usual + j + step);
        FloatVector negative_a = hn::Load(d, sums.negative + j),
                    negative_b = hn::Load(d, sums.negative + j + step);
        for (size_t g = 0; g < groups; g++) {
            const FloatVector a = hn::LoadU(d, x + g * group_values + j),
                              b = hn::LoadU(d, x + g * group_values + j + step);
            const auto is_a = hn::Lt(a, hn::Zero(d)), is_b = hn::Lt(b, hn::Zero(d));
            usual_a = hn::Add(usual_a, hn::IfThenZeroElse(is_a, a));
            usual_b = hn::Add(usual_b, hn::IfThenZeroElse(is_b, b));
            negative_a = hn::Add(negative_a, hn::IfThenElseZero(is_a, a));
            negative_b = hn::Add(negative_b, hn::IfThenElseZero(is_b, b));
            const uint32_t codes = bits_of_mask(is_a) | bits_of_mask(is_b) << step;
            std::memcpy(plane + g * (group_values / 8) + j / 8, &codes, step / 4);
        }
        hn::Store(usual_a, d, sums.usual + j);
        hn::Store(usual_b, d, sums.usual + j + step);
        hn::Store(negative_a, d, sums.negative + j);
        hn::Store(negative_b, d, sums.negative + j + step);
    }
    for (size_t g = 0; g < groups; g++)
        sums.negatives += static_cast<uint64_t>(std::popcount(load_bits<uint32_t>(plane, g)));
}

// Encodes bucket by bucket. Both sums are finite exactly if all values are and no sum overflows;
// the reference encodes other buckets.
inline void encode_signs(const ChunkRange &range, const Noise &noise, DataType in, const void *src,
                         std::byte *payload) {
    const Groups groups = groups_of(range);
    PaddedSource source(in, src);
    auto *const plane =
        reinterpret_cast<uint8_t *>(payload) + range.layout->plane1 + groups.first * 4;
    std::byte *const wire = payload + range.layout->scales;
    const size_t buckets = groups.blocks();
    for (size_t i = 0; i < buckets; i++) {
        const size_t begin = i * groups.per_block,
                     end = std::min(groups.count, begin + groups.per_block);
        const size_t values = std::min(groups.values, end * group_values) - begin * group_values;
        SignSums sums;
        for (size_t g = begin; g < end; g += tile_groups) {
            const size_t count = std::min(tile_groups, end - g), from = g * group_values;
            const float *const x =
                source.values(from, std::min(count * group_values, groups.values - from));
            add_signs(x, count, sums, plane + g * 4);
        }
        const float usual = sum_of_lanes(sums.usual), negative = sum_of_lanes(sums.negative);
        if (!is_finite(usual) || !is_finite(negative)) {
            encode_by_reference(range, noise, in, src, payload, groups, {i, 1, begin, end}, 1);
            continue;
        }
        const uint64_t bucket = groups.first_block() + i;
        store_bits(wire, 2 * bucket, onebit_mean(usual, values - sums.negatives, 1));
        store_bits(wire, 2 * bucket + 1, onebit_mean(negative, sums.negatives, 1));
    }
}

// Decodes a group; `codes` has a bit for each value. The means are canonical.
template <Put put>
HWY_INLINE void put_signs(uint32_t codes, FloatVector mean, FloatVector negative_mean, float *dst) {
    const Floats d;
    const Words dw;
    const WordVector bit = hn::Shl(hn::Set(dw, 1U), hn::Iota(dw, 0U));
    for (size_t j = 0; j < group_values; j += lanes()) {
        const auto is_negative = hn::TestBit(hn::Set(dw, codes >> j), bit);
        FloatVector y = hn::IfThenElse(hn::RebindMask(d, is_negative), negative_mean, mean);
        if constexpr (put == Put::add) y = canonical_vector(hn::Add(hn::LoadU(d, dst + j), y));
        hn::StoreU(y, d, dst + j);
    }
}

// Decodes `count` values of the range, from its group `first` on.
template <Put put>
void put_onebit(const ChunkRange &range, const Groups &groups, const std::byte *payload,
                size_t first, size_t count, float *dst) {
    const Floats d;
    const std::byte *const plane = payload + range.layout->plane1, *const wire =
                                                                       payload +
                                                                       range.layout->scales;
    const uint64_t from = groups.first + first,
                   end = from + (count + group_values - 1) / group_values;
    for (uint64_t g = from; g < end;) {
        const uint64_t bucket = g / groups.per_block,
                       stop = std::min(end, (bucket + 1) * groups.per_block);
        const FloatVector mean = hn::Set(d, canonical(load_bits<float>(wire, 2 * bucket))),
                          negative_mean =
                              hn::Set(d, canonical(load_bits<float>(wire, 2 * bucket + 1)));
        for (; g < stop; g++, dst += group_values) {
            const auto codes = load_bits<uint32_t>(plane, g);
            const size_t left = count - (g - from) * group_values;
            if (left >= group_values) {
                put_signs<put>(codes, mean, negative_mean, dst);
                continue;
            }
            float values[group_values] = {};
            std::memcpy(values, dst, left * sizeof(float));
            put_signs<put>(codes, mean, negative_mean, values);
            std::memcpy(dst, values, left * sizeof(float));
        }
    }
}

} // namespace qccl::HWY_NAMESPACE

HWY_AFTER_NAMESPACE();
#endif
