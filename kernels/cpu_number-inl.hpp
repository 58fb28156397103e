// Plain values in vectors: loads every float format as fp32 and stores it from fp32 with one
// rounding, as number.hpp defines it. The code uses integer arithmetic because Highway's casts to
// 16 bits truncate on some targets and write the canonical NaN on none. Compiled once per target.
#if defined(QCCL_CPU_NUMBER_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef QCCL_CPU_NUMBER_INL
#undef QCCL_CPU_NUMBER_INL
#else
#define QCCL_CPU_NUMBER_INL
#endif

#include "kernels/number.hpp"

#include <hwy/highway.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

HWY_BEFORE_NAMESPACE();
namespace qccl::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// At most 16 lanes, so that a group of 32 values is a whole number of vectors on every target.
inline constexpr size_t max_lanes = 16;
using Floats = hn::CappedTag<float, max_lanes>;
using Words = hn::RebindToUnsigned<Floats>;
using Ints = hn::RebindToSigned<Floats>;
using FloatVector = hn::Vec<Floats>;
using WordVector = hn::Vec<Words>;
using IntVector = hn::Vec<Ints>;

HWY_INLINE size_t lanes() { return hn::Lanes(Floats()); }

HWY_INLINE FloatVector float_vector(uint32_t bits) {
    return hn::BitCast(Floats(), hn::Set(Words(), bits));
}
template <class V> HWY_INLINE V canonical_vector(V v) {
    const hn::DFromV<V> d;
    const hn::RebindToUnsigned<decltype(d)> du;
    using T = hn::TFromD<decltype(du)>;
    const auto nan =
        hn::BitCast(d, hn::Set(du, sizeof(T) == 8 ? static_cast<T>(double_nan) : T{float_nan}));
    return hn::IfThenElse(hn::IsNaN(v), nan, v);
}

// Keeps v in a register and hides its origin from GCC. GCC would otherwise load the value again for
// each use, and turn a comparison with a constant into two instructions.
template <class V> HWY_INLINE V in_register(V v) {
#if HWY_COMPILER_GCC_ACTUAL && HWY_ARCH_X86 && HWY_TARGET <= HWY_SSE4
    asm("" : "+v"(v.raw));
#endif
    return v;
}

// Returns the lanes of `v` that are above `bound`. Both are below 2^31, so signed comparisons work.
HWY_INLINE hn::Mask<Floats> exceeds(WordVector v, uint32_t bound) {
    const Ints di;
    const auto mask = hn::Gt(hn::BitCast(di, v), hn::Set(di, static_cast<int32_t>(bound)));
    return hn::RebindMask(Floats(), mask);
}
HWY_INLINE WordVector choose(hn::Mask<Floats> mask, WordVector yes, WordVector no) {
    return hn::IfThenElse(hn::RebindMask(Words(), mask), yes, no);
}

// widen() of number.hpp: exact; NaN becomes canonical.
template <class F> HWY_INLINE FloatVector widen_vector(WordVector v) {
    const Words dw;
    const Floats df;
    constexpr int bias = (1 << (F::exponent_bits - 1)) - 1, shift = 23 - F::fraction_bits;
    constexpr uint32_t smallest_subnormal = static_cast<uint32_t>(128 - bias - F::fraction_bits)
                                            << 23;
    const WordVector magnitude = hn::And(v, hn::Set(dw, F::sign - 1));
    const WordVector rebias = hn::Set(dw, static_cast<uint32_t>(127 - bias) << 23);
    const WordVector normal = hn::Add(hn::ShiftLeft<shift>(magnitude), rebias);
    const FloatVector subnormal = hn::Mul(hn::ConvertTo(df, hn::BitCast(Ints(), magnitude)),
                                          float_vector(smallest_subnormal));
    const auto is_normal = exceeds(magnitude, (1U << F::fraction_bits) - 1);
    WordVector bits = choose(is_normal, normal, hn::BitCast(dw, subnormal));
    if constexpr (F::infinity != F::nan)
        bits = choose(exceeds(magnitude, F::largest), hn::Set(dw, float_infinity), bits);
    constexpr int places = hwy::CeilLog2(0x80000000U / F::sign);
    bits = hn::Or(bits, hn::ShiftLeft<places>(hn::And(v, hn::Set(dw, F::sign))));
    constexpr uint32_t last_number = F::infinity != F::nan ? F::infinity : F::largest;
    return hn::BitCast(df, choose(exceeds(magnitude, last_number), hn::Set(dw, float_nan), bits));
}
// A bf16 is the upper half of a float.
template <> HWY_INLINE FloatVector widen_vector<Bfloat>(WordVector v) {
    return canonical_vector(hn::BitCast(Floats(), hn::ShiftLeft<16>(v)));
}

// narrow() of number.hpp for fp32: one rounding to nearest even; NaN becomes canonical.
template <class F, Overflow overflow = F::stored>
HWY_INLINE WordVector narrow_vector(FloatVector v) {
    const Words dw;
    const Floats df;
    constexpr int bias = (1 << (F::exponent_bits - 1)) - 1, shift = 23 - F::fraction_bits;
    constexpr uint32_t rebias = static_cast<uint32_t>(127 - bias) << 23;
    const WordVector bits = hn::BitCast(dw, v);
    const WordVector magnitude = hn::And(bits, hn::Set(dw, float_infinity | (float_infinity - 1)));
    // Adds half of the last place minus one, and one more if the last place is odd: ties go to
    // even.
    const WordVector odd = hn::And(hn::ShiftRight<shift>(magnitude), hn::Set(dw, 1));
    const WordVector bump = hn::Add(odd, hn::Set(dw, (1U << (shift - 1)) - 1 - rebias));
    WordVector encoded = hn::ShiftRight<shift>(hn::Add(magnitude, bump));
    if constexpr (rebias != 0) {
        // The last place of `grid` is the smallest subnormal, so the addition rounds to multiples
        // of it.
        constexpr uint32_t grid = static_cast<uint32_t>(128 - bias + shift) << 23;
        const FloatVector on_grid = hn::Add(hn::BitCast(df, magnitude), float_vector(grid));
        const WordVector subnormal = hn::Sub(hn::BitCast(dw, on_grid), hn::Set(dw, grid));
        encoded = choose(exceeds(magnitude, rebias + (1U << 23) - 1), encoded, subnormal);
    }
    const uint32_t limit = overflow == Overflow::saturate ? F::largest : F::infinity;
    encoded = hn::Min(encoded, hn::Set(dw, limit));
    encoded = choose(exceeds(magnitude, float_infinity - 1), hn::Set(dw, F::infinity), encoded);
    constexpr int places = hwy::CeilLog2(0x80000000U / F::sign);
    encoded = hn::Or(encoded, hn::And(hn::ShiftRight<places>(bits), hn::Set(dw, F::sign)));
    constexpr uint32_t last_number = F::infinity != F::nan ? float_infinity : float_infinity - 1;
    return choose(exceeds(magnitude, last_number), hn::Set(dw, F::nan), encoded);
}

// Loads lanes() values of a format. Doubles are rounded once. NaN becomes canonical in all formats
// but fp32 itself.
template <class F> HWY_INLINE FloatVector load(const Storage<F> *src) {
    if constexpr (std::is_same_v<F, float>) {
        return hn::LoadU(Floats(), src);
    } else if constexpr (std::is_same_v<F, double>) {
        double wide[max_lanes];
        HWY_ALIGN float rounded[max_lanes];
        const size_t count = lanes();
        std::memcpy(wide, src, count * sizeof(double));
        for (size_t i = 0; i < count; i++) rounded[i] = static_cast<float>(wide[i]);
        return canonical_vector(hn::Load(Floats(), rounded));
    } else {
        const hn::Rebind<Storage<F>, Floats> narrow;
        return widen_vector<F>(hn::PromoteTo(Words(), hn::LoadU(narrow, src)));
    }
}

template <class F, Overflow overflow> HWY_INLINE void store_narrow(FloatVector v, Storage<F> *dst) {
    const hn::Rebind<Storage<F>, Floats> narrow;
    const IntVector encoded = hn::BitCast(Ints(), narrow_vector<F, overflow>(v));
    hn::StoreU(hn::DemoteTo(narrow, encoded), narrow, dst);
}
template <class F> HWY_INLINE void store(FloatVector v, Storage<F> *dst) {
    if constexpr (std::is_same_v<F, float>) {
        hn::StoreU(v, Floats(), dst);
    } else if constexpr (std::is_same_v<F, double>) {
        HWY_ALIGN float exact[max_lanes];
        double wide[max_lanes];
        const size_t count = lanes();
        hn::Store(canonical_vector(v), Floats(), exact);
        for (size_t i = 0; i < count; i++) wide[i] = exact[i];
        std::memcpy(dst, wide, count * sizeof(double));
    } else {
        store_narrow<F, F::stored>(v, dst);
    }
}

} // namespace qccl::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
