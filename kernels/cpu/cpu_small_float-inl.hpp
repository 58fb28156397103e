// Encodes the MX codecs and `nvfp4`, whose codes are small floats. MX: finds the largest magnitude
// of each block, which is a group, and rounds the block's values to the grid of small floats.
// nvfp4: computes the base of each bucket from its largest magnitude, then the scales and codes of
// the two blocks of each group. Compiled once per target.

#if defined(QCCL_CPU_SMALL_FLOAT_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef QCCL_CPU_SMALL_FLOAT_INL
#undef QCCL_CPU_SMALL_FLOAT_INL
#else
#define QCCL_CPU_SMALL_FLOAT_INL
#endif

#include "kernels/codec/small_float_block.hpp"
#include "kernels/cpu/cpu_quantise-inl.hpp"

HWY_BEFORE_NAMESPACE();

namespace qccl::HWY_NAMESPACE {

// ---- MX

HWY_INLINE WordVector magnitude_of(FloatVector v) {
    return hn::And(hn::BitCast(Words(), v), hn::Set(Words(), 0x7FFFFFFFU));
}

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

template <class F, bool is_drawn>
void encode_mx(const ChunkRange &range, const Noise &noise, DataType in, const void *src,
               std::byte *payload) {
    const Groups groups = groups_of(range);
    const bool rounds_up = range.codec->scaling == Scaling::ceil;
    Source source(in, src, groups);
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
            if (!scale.has_codes) {
                std::fill_n(bytes + at, group_values, uint8_t{0});
                continue;
            }
            const FloatVector inverse = hn::Set(Floats(), scale.inverse);
            const auto vector = [&](size_t j) HWY_ATTR {
                const FloatVector v = hn::Mul(hn::LoadU(Floats(), x + at + j), inverse);
                return element_codes<F, is_drawn>(v, is_drawn ? drawn + at + j : nullptr);
            };
            store_bytes<uint8_t, 1>(vector, bytes + at);
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
    TileGroups(Source &source, const Groups &groups, size_t g)
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

HWY_INLINE uint32_t largest_of_bucket(Source &source, const Groups &groups, size_t begin,
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
    Source source(in, src, groups);
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

} // namespace qccl::HWY_NAMESPACE

HWY_AFTER_NAMESPACE();
#endif
