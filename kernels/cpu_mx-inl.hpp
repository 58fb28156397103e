// Encodes the MX codecs: finds the largest magnitude of each block, which is a group, and rounds
// the block's values to the grid of small floats. Compiled once per target.
#if defined(QCCL_CPU_MX_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef QCCL_CPU_MX_INL
#undef QCCL_CPU_MX_INL
#else
#define QCCL_CPU_MX_INL
#endif

#include "kernels/cpu_quantise-inl.hpp"
#include "kernels/mx_block.hpp"

HWY_BEFORE_NAMESPACE();
namespace qccl::HWY_NAMESPACE {

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

// element_code() of mx_element.hpp for lanes() values.
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

} // namespace qccl::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
