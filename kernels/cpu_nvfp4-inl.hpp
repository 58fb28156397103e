// Encodes `nvfp4`: computes the base of each bucket from its largest magnitude, then the scales and
// codes of the two blocks of each group. Compiled once per target.
#if defined(QCCL_CPU_NVFP4_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef QCCL_CPU_NVFP4_INL
#undef QCCL_CPU_NVFP4_INL
#else
#define QCCL_CPU_NVFP4_INL
#endif

#include "kernels/cpu_mx-inl.hpp"
#include "kernels/nvfp4_block.hpp"

HWY_BEFORE_NAMESPACE();
namespace qccl::HWY_NAMESPACE {

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
