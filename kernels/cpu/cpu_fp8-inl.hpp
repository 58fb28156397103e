// Encodes fp8 with a block in fp32: finds the largest magnitude of each group of a tile, computes
// the scales of its blocks together and rounds the values to the grid of small floats. A tile
// consists of whole blocks. Compiled once per target.

#if defined(QCCL_CPU_FP8_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef QCCL_CPU_FP8_INL
#undef QCCL_CPU_FP8_INL
#else
#define QCCL_CPU_FP8_INL
#endif

#include "kernels/codec/small_float_block.hpp"
#include "kernels/cpu/cpu_encode-inl.hpp"

HWY_BEFORE_NAMESPACE();

namespace qccl::HWY_NAMESPACE {

static_assert(tile_values % most_rotation == 0);

// The blocks of a tile.
struct TileScales {
    HWY_ALIGN uint32_t largest[tile_groups]; // bit patterns
    HWY_ALIGN float inverse[tile_groups];    // 0: every code is 0
    HWY_ALIGN uint16_t wire[tile_groups];
};

// Finds the largest magnitude of each block; a block has `per_block` groups, a power of two.
HWY_INLINE void find_largest(const float *x, size_t per_block, uint32_t *largest) {
    const Words d;
    for (size_t i = 0; i < tile_groups; i += lanes())
        hn::Store(hn::ShiftRight<1>(keys_of_groups(x + i * group_values)), d, largest + i);
    size_t count = tile_groups;
    for (size_t merged = 1; merged < per_block; merged *= 2) {
        count /= 2;
        for (size_t i = 0; i < count; i++)
            largest[i] = std::max(largest[2 * i], largest[2 * i + 1]);
    }
}

// fp8_scale() of small_float_block.hpp for all blocks of a tile.
template <class F> HWY_INLINE void scale_tile(TileScales &blocks) {
    const Words d;
    const Floats df;
    const hn::Rebind<uint16_t, Words> narrow;
    constexpr float share = 1.0F / largest_number<F>;
    constexpr uint32_t least = uint32_t{least_scale_bits} << 16,
                       most = largest_scale_bits(element_exponent<F>);
    for (size_t i = 0; i < tile_groups; i += lanes()) {
        const WordVector magnitude = hn::Load(d, blocks.largest + i);
        const auto is_strange = exceeds(magnitude, float_infinity - 1);
        const auto has_codes = hn::AndNot(is_strange, exceeds(magnitude, 0));
        // An infinity or NaN would only slow the arithmetic down.
        const WordVector number = choose(is_strange, hn::Zero(d), magnitude);
        const WordVector wanted =
            hn::BitCast(d, hn::Mul(hn::BitCast(df, number), hn::Set(df, share)));
        const WordVector rounded =
            hn::ShiftRight<16>(hn::Add(hn::Max(wanted, hn::Set(d, least)), hn::Set(d, 0xFFFFU)));
        const WordVector wire = hn::Min(rounded, hn::Set(d, most));
        const FloatVector scale = hn::BitCast(df, hn::ShiftLeft<16>(wire));
        hn::Store(hn::IfThenElseZero(has_codes, hn::Div(hn::Set(df, 1.0F), scale)), df,
                  blocks.inverse + i);
        const WordVector without =
            choose(is_strange, hn::Set(d, uint32_t{Bfloat::nan}), hn::Zero(d));
        hn::Store(hn::DemoteTo(narrow, hn::BitCast(Ints(), choose(has_codes, wire, without))),
                  narrow, blocks.wire + i);
    }
}

template <class F, bool is_drawn>
void encode_fp8(const ChunkRange &range, const Noise &noise, DataType in, const void *src,
                std::byte *payload) {
    const Groups groups = groups_of(range);
    GroupSource source(in, src, groups);
    Draws draws(range, noise);
    Codes codes(range, groups, payload);
    std::byte *wire = payload + range.layout->scales + groups.first_block() * sizeof(uint16_t);
    TileScales blocks;
    for (size_t g = 0; g < groups.count; g += tile_groups) {
        const size_t count = std::min(tile_groups, groups.count - g),
                     scales = (count + groups.per_block - 1) / groups.per_block;
        const float *const x = source.tile(g);
        const uint16_t *drawn = nullptr;
        if constexpr (is_drawn) drawn = draws.tile(g, count);
        find_largest(x, groups.per_block, blocks.largest);
        scale_tile<F>(blocks);
        std::memcpy(wire, blocks.wire, scales * sizeof(uint16_t));
        wire += scales * sizeof(uint16_t);
        uint8_t *const bytes = codes.tile(g);
        for (size_t i = 0; i < count; i++) {
            const size_t at = i * group_values;
            encode_elements<F, is_drawn>(x + at, blocks.inverse[i / groups.per_block],
                                         is_drawn ? drawn + at : nullptr, bytes + at);
        }
        codes.take(g, count);
    }
}

template <class F>
void encode_fp8(const ChunkRange &range, const Noise &noise, DataType in, const void *src,
                std::byte *payload) {
    if (range.codec->rounding == Rounding::stochastic)
        encode_fp8<F, true>(range, noise, in, src, payload);
    else
        encode_fp8<F, false>(range, noise, in, src, payload);
}

inline void encode_scaled(const ChunkRange &range, const Noise &noise, DataType in, const void *src,
                          std::byte *payload) {
    with_fp8(range.codec->id, [&]<class F>(F) { encode_fp8<F>(range, noise, in, src, payload); });
}

} // namespace qccl::HWY_NAMESPACE

HWY_AFTER_NAMESPACE();
#endif
