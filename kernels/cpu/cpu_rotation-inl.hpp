// The transform of rotation.hpp in fp32, in registers: eight vectors at a time go through all
// butterflies that lie within them, and larger blocks through those between them in memory.
// Compiled once per target.
#if defined(QCCL_CPU_ROTATION_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef QCCL_CPU_ROTATION_INL
#undef QCCL_CPU_ROTATION_INL
#else
#define QCCL_CPU_ROTATION_INL
#endif

#include "kernels/codec/rotation.hpp"
#include "kernels/cpu/cpu_values-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace qccl::HWY_NAMESPACE {

// Factors with their signs, by the shift of rotation_shift(); the signs of a smaller block are the
// first ones of a larger one.
inline constexpr int least_rotation_shift = 2, rotation_shifts = 4;
static_assert(rotation_shift(least_rotation, true) == least_rotation_shift &&
              rotation_shift(most_rotation, false) == least_rotation_shift + rotation_shifts - 1);
struct RotationFactors {
    alignas(64) float of[rotation_shifts][most_rotation];
};
inline constexpr RotationFactors rotation_factors = [] {
    constexpr uint32_t of_shift[rotation_shifts] = {16, 64, 256, 1024}; // 2^(2 shift)
    RotationFactors factors{};
    for (int shift = 0; shift < rotation_shifts; shift++)
        for (uint32_t i = 0; i < most_rotation; i++)
            factors.of[shift][i] = rotation_factor(of_shift[shift], true, rotation_signs_from(i));
    return factors;
}();
HWY_INLINE const float *factors_of(uint32_t d, bool is_back) {
    return rotation_factors.of[rotation_shift(d, is_back) - least_rotation_shift];
}

// 1 in lanes whose number lacks bit `level`, -1 in the others.
template <int level> HWY_INLINE FloatVector lane_signs() {
    const Ints d;
    const IntVector bit = hn::And(hn::Iota(d, 0), hn::Set(d, 1 << level));
    return hn::ConvertTo(Floats(),
                         hn::Sub(hn::Set(d, 1), hn::ShiftRight<level>(hn::Add(bit, bit))));
}

// Exchanges lanes whose numbers differ in bit `level`.
template <int level> HWY_INLINE FloatVector exchanged(FloatVector v) {
    if constexpr (level == 0) {
        return hn::Shuffle2301(v);
    } else if constexpr (level == 1) {
        return hn::Shuffle1032(v);
#if HWY_MAX_BYTES >= 32
    } else if constexpr (level == 2) {
        return hn::SwapAdjacentBlocks(v);
    } else {
        return hn::ConcatLowerUpper(Floats(), v, v);
#endif
    }
    return v;
}

// The butterflies between a vector's lanes. The product with 1 or -1 is exact, so a fused
// multiply-add rounds as an addition or a subtraction does.
template <int level> HWY_INLINE FloatVector mixed_lanes(FloatVector v, FloatVector signs) {
    return hn::MulAdd(v, signs, exchanged<level>(v));
}

HWY_INLINE void mix(FloatVector &a, FloatVector &b) {
    const FloatVector sum = hn::Add(a, b);
    b = hn::Sub(a, b);
    a = sum;
}

inline constexpr size_t rotated_vectors = 8; // at a time

// What is done to eight vectors besides butterflies.
enum class Turn : uint8_t { forth, back, back_and_add };

// Transforms eight vectors from src to dst, with the butterflies up to the distance of `vectors`
// vectors (a power of two), which is at most half the block. `is_last`: the block has no others.
// `suspects` becomes NaN if a result is.
template <Turn turn, bool is_last, size_t vectors>
HWY_INLINE void rotate_eight(const float *src, float *dst, const float *factors,
                             FloatVector &suspects_a, FloatVector &suspects_b) {
    const Floats d;
    const size_t n = lanes();
    const FloatVector signs_0 = lane_signs<0>(), signs_1 = lane_signs<1>(),
                      signs_2 = lane_signs<2>(), signs_3 = lane_signs<3>();
    const auto take = [&](size_t i) HWY_ATTR {
        FloatVector v = hn::LoadU(d, src + i * n);
        if constexpr (turn == Turn::forth) v = hn::Mul(v, hn::LoadU(d, factors + i * n));
        v = mixed_lanes<0>(v, signs_0);
        v = mixed_lanes<1>(v, signs_1);
        if (n >= 8) v = mixed_lanes<2>(v, signs_2);
        if (n >= 16) v = mixed_lanes<3>(v, signs_3);
        return v;
    };
    FloatVector v0 = take(0), v1 = take(1), v2 = take(2), v3 = take(3);
    FloatVector v4 = take(4), v5 = take(5), v6 = take(6), v7 = take(7);
    if constexpr (vectors >= 2) mix(v0, v1), mix(v2, v3), mix(v4, v5), mix(v6, v7);
    if constexpr (vectors >= 4) mix(v0, v2), mix(v1, v3), mix(v4, v6), mix(v5, v7);
    if constexpr (vectors >= 8) mix(v0, v4), mix(v1, v5), mix(v2, v6), mix(v3, v7);
    const auto put = [&](size_t i, FloatVector v) HWY_ATTR {
        if constexpr (turn != Turn::forth && is_last) v = hn::Mul(v, hn::LoadU(d, factors + i * n));
        if constexpr (turn == Turn::back_and_add && is_last)
            v = hn::Add(hn::LoadU(d, dst + i * n), v);
        hn::StoreU(v, d, dst + i * n);
        return v;
    };
    const auto put_pair = [&](size_t i, FloatVector a, FloatVector b,
                              FloatVector &suspects) HWY_ATTR {
        a = put(i, a);
        b = put(i + 1, b);
        if constexpr (turn != Turn::forth && is_last)
            suspects = hn::MulAdd(a, b, suspects); // no stored byte depends on this
    };
    put_pair(0, v0, v1, suspects_a);
    put_pair(2, v2, v3, suspects_b);
    put_pair(4, v4, v5, suspects_a);
    put_pair(6, v6, v7, suspects_b);
}

// The butterflies of a block from the distance of `h` values on, in place, and what follows them.
template <Turn turn>
HWY_INLINE void rotate_far(uint32_t d_values, size_t h, float *values, float *dst,
                           const float *factors, FloatVector &suspects) {
    const Floats d;
    const size_t n = lanes();
    for (; h < d_values; h *= 2) {
        const bool is_last = 2 * h == d_values;
        const auto put = [&](size_t i, FloatVector v) HWY_ATTR {
            if (turn == Turn::forth || !is_last) return hn::StoreU(v, d, values + i);
            v = hn::Mul(v, hn::LoadU(d, factors + i));
            if constexpr (turn == Turn::back_and_add) v = hn::Add(hn::LoadU(d, dst + i), v);
            suspects = hn::MulAdd(v, v, suspects); // no stored byte depends on this
            hn::StoreU(v, d, dst + i);
        };
        for (size_t begin = 0; begin < d_values; begin += 2 * h)
            for (size_t i = begin; i < begin + h; i += n) {
                FloatVector a = hn::LoadU(d, values + i), b = hn::LoadU(d, values + i + h);
                mix(a, b);
                put(i, a);
                put(i + h, b);
            }
    }
}

// Transforms whole blocks of d values.
template <Turn turn, size_t vectors>
HWY_INLINE void rotate_small(const float *factors, const float *src, float *dst, size_t count,
                             FloatVector &suspects_a, FloatVector &suspects_b) {
    const size_t step = rotated_vectors * lanes();
    size_t i = 0;
    for (; i + step <= count; i += step)
        rotate_eight<turn, true, vectors>(src + i, dst + i, factors, suspects_a, suspects_b);
    if (i == count) return;
    // Blocks that fill no eight vectors go through memory that does.
    HWY_ALIGN float from[rotated_vectors * max_lanes] = {}, to[rotated_vectors * max_lanes] = {};
    std::copy_n(src + i, count - i, from);
    std::copy_n(dst + i, count - i, to);
    rotate_eight<turn, true, vectors>(from, to, factors, suspects_a, suspects_b);
    std::copy_n(to, count - i, dst + i);
}

// Transforms whole blocks of d values that are longer than eight vectors.
template <Turn turn>
HWY_INLINE void rotate_large(uint32_t d_values, const float *factors, const float *src, float *dst,
                             size_t count, FloatVector &suspects_a, FloatVector &suspects_b) {
    const size_t step = rotated_vectors * lanes();
    HWY_ALIGN float buffer[most_rotation];
    for (size_t i = 0; i < count; i += d_values) {
        float *const values = turn == Turn::forth ? dst + i : buffer;
        for (size_t j = 0; j < d_values; j += step)
            rotate_eight<turn, false, rotated_vectors>(src + i + j, values + j, factors + j,
                                                       suspects_a, suspects_b);
        rotate_far<turn>(d_values, step, values, dst + i, factors, suspects_a);
    }
}

// Factors repeat with the block where eight vectors hold several.
template <Turn turn>
HWY_INLINE void rotate_all(uint32_t d_values, const float *src, float *dst, size_t count,
                           FloatVector &suspects_a, FloatVector &suspects_b) {
    const float *factors = factors_of(d_values, turn != Turn::forth);
    const size_t step = rotated_vectors * lanes();
    if (d_values > step)
        return rotate_large<turn>(d_values, factors, src, dst, count, suspects_a, suspects_b);
    HWY_ALIGN float repeated[rotated_vectors * max_lanes];
    if (d_values < step) {
        for (size_t i = 0; i < step; i += d_values) std::copy_n(factors, d_values, repeated + i);
        factors = repeated;
    }
    switch (d_values / lanes()) {
    case 2: return rotate_small<turn, 2>(factors, src, dst, count, suspects_a, suspects_b);
    case 4: return rotate_small<turn, 4>(factors, src, dst, count, suspects_a, suspects_b);
    default: return rotate_small<turn, 8>(factors, src, dst, count, suspects_a, suspects_b);
    }
}

inline void rotate(uint32_t d_values, const float *src, float *dst, uint64_t count) {
    FloatVector unused = hn::Zero(Floats());
    const size_t whole = count / d_values * d_values;
    rotate_all<Turn::forth>(d_values, src, dst, whole, unused, unused);
    if (src != dst) std::copy_n(src + whole, count - whole, dst + whole);
}

template <Turn turn>
void rotate_back(uint32_t d_values, const float *src, float *dst, uint64_t count) {
    const Floats d;
    FloatVector suspects_a = hn::Zero(d), suspects_b = suspects_a;
    const size_t whole = count / d_values * d_values;
    rotate_all<turn>(d_values, src, dst, whole, suspects_a, suspects_b);
    for (size_t i = whole; i < count; i++)
        dst[i] = turn == Turn::back_and_add ? canonical(dst[i] + src[i]) : src[i];
    if (hn::AllFalse(d, hn::IsNaN(hn::Add(suspects_a, suspects_b)))) return;
    for (size_t i = 0; i < whole; i += lanes())
        hn::StoreU(canonical_vector(hn::LoadU(d, dst + i)), d, dst + i);
}
inline void rotate_back(uint32_t d_values, const float *src, float *dst, uint64_t count,
                        bool adds) {
    if (adds) return rotate_back<Turn::back_and_add>(d_values, src, dst, count);
    rotate_back<Turn::back>(d_values, src, dst, count);
}

} // namespace qccl::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
