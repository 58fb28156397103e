// Plain values in vectors: loads every float format as fp32 and stores it from fp32 with one
// rounding, as number.hpp defines it; reduces (accumulator op value) and divides values of every
// type; copies values, bits between equal types and with one rounding between a type and its
// accumulator's type; and provides the stores that bypass the cache. The conversions use integer
// arithmetic because Highway's casts to 16 bits truncate on some targets and write the canonical
// NaN on none. Compiled once per target.

#if defined(QCCL_CPU_VALUES_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef QCCL_CPU_VALUES_INL
#undef QCCL_CPU_VALUES_INL
#else
#define QCCL_CPU_VALUES_INL
#endif

#include "kernels/codec/combine.hpp"
#include "kernels/codec/number.hpp"

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

HWY_BEFORE_NAMESPACE();

namespace qccl::HWY_NAMESPACE {

// ---- Formats

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
// Returns the patterns without their signs. Of numbers, the larger pattern is the larger magnitude.
HWY_INLINE WordVector magnitude_of(FloatVector v) {
    return hn::And(hn::BitCast(Words(), v), hn::Set(Words(), 0x7FFFFFFFU));
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

// Returns the lanes of a mask as bits, the first lane lowest.
template <class D> HWY_INLINE uint32_t bits_of_mask(D d, hn::Mask<D> mask) {
    uint8_t bytes[sizeof(uint64_t)] = {}; // StoreMaskBits may write up to 8 bytes
    hn::StoreMaskBits(d, mask, bytes);
    return load_bits<uint16_t>(bytes, 0);
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

// narrow_by_chance() of number.hpp for fp32. `draws` has a draw in each lane.
template <class F> HWY_INLINE WordVector narrow_vector_by_chance(FloatVector v, WordVector draws) {
    const Words dw;
    constexpr int bias = (1 << (F::exponent_bits - 1)) - 1, dropped = 23 - F::fraction_bits;
    constexpr uint32_t rebias = static_cast<uint32_t>(127 - bias) << 23;
    const WordVector bits = hn::BitCast(dw, v);
    const WordVector magnitude = hn::And(bits, hn::Set(dw, float_infinity | (float_infinity - 1)));
    WordVector noise = draws;
    if constexpr (dropped < 16) noise = hn::ShiftRight<16 - dropped>(draws);
    if constexpr (dropped > 16) noise = hn::ShiftLeft<dropped - 16>(draws);
    WordVector encoded =
        hn::ShiftRight<dropped>(hn::Add(hn::Sub(magnitude, hn::Set(dw, rebias)), noise));
    if constexpr (rebias != 0) {
        constexpr auto exponent = static_cast<uint32_t>(127 + bias - 1 + F::fraction_bits + 16);
        // Lanes with larger magnitudes are not chosen; they stay within 32 bits.
        const WordVector small = hn::Min(magnitude, hn::Set(dw, rebias + (1U << 23)));
        const FloatVector steps =
            hn::Mul(hn::BitCast(Floats(), small), float_vector(exponent << 23));
        const WordVector whole = hn::BitCast(dw, hn::ConvertTo(Ints(), steps));
        encoded = choose(exceeds(magnitude, rebias + (1U << 23) - 1), encoded,
                         hn::ShiftRight<16>(hn::Add(whole, draws)));
    }
    encoded = hn::Min(encoded, hn::Set(dw, F::largest));
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

// ---- Reduce and divide

using Doubles = hn::CappedTag<double, max_lanes>;

// combine() of combine.hpp for vectors: NaN becomes canonical, -0 < +0.
template <RedOp op, class V> HWY_INLINE V combine_vectors(V a, V b) {
    if constexpr (op == RedOp::sum)
        return canonical_vector(hn::Add(a, b));
    else if constexpr (op == RedOp::prod)
        return canonical_vector(hn::Mul(a, b));
    else {
        // Equal numbers differ at most in the sign of zero, which the bit operation decides.
        const auto first = op == RedOp::max ? hn::Gt(a, b) : hn::Lt(a, b);
        const V equal = op == RedOp::max ? hn::And(a, b) : hn::Or(a, b);
        const V picked = hn::IfThenElse(hn::Eq(a, b), equal, hn::IfThenElse(first, a, b));
        return canonical_vector(hn::IfThenElse(hn::IsNaN(a), a, picked)); // `picked` keeps a NaN b
    }
}

// Calls Step::run(dst, src) for every full vector, and once more on padded copies of the rest.
template <class Step, class Dst, class Src>
HWY_INLINE void for_each_vector(size_t step, Dst *dst, const Src *src, size_t count) {
    size_t i = 0;
    for (; i + step <= count; i += step) Step::run(dst + i, src + i);
    if (i == count) return;
    Dst dst_rest[max_lanes] = {};
    Src src_rest[max_lanes] = {};
    std::memcpy(dst_rest, dst + i, (count - i) * sizeof(Dst));
    std::memcpy(src_rest, src + i, (count - i) * sizeof(Src));
    Step::run(dst_rest, src_rest);
    std::memcpy(dst + i, dst_rest, (count - i) * sizeof(Dst));
}

template <RedOp op, class F> struct ReduceStep {
    static HWY_INLINE void run(float *accumulator, const Storage<F> *src) {
        const Floats d;
        hn::StoreU(combine_vectors<op>(hn::LoadU(d, accumulator), load<F>(src)), d, accumulator);
    }
};
template <RedOp op> struct ReduceStep<op, double> {
    static HWY_INLINE void run(double *accumulator, const double *src) {
        const Doubles d;
        hn::StoreU(combine_vectors<op>(hn::LoadU(d, accumulator), hn::LoadU(d, src)), d,
                   accumulator);
    }
};
template <RedOp op, class F> void reduce_floats(void *accumulator, const void *src, size_t count) {
    using Accumulator = std::conditional_t<std::is_same_v<F, double>, double, float>;
    const size_t step = std::is_same_v<F, double> ? hn::Lanes(Doubles()) : lanes();
    for_each_vector<ReduceStep<op, F>>(step, static_cast<Accumulator *>(accumulator),
                                       static_cast<const Storage<F> *>(src), count);
}

// Plain loops, which compilers vectorise: Highway has no products of 8 and 64 bits, and other
// elements are rare.
template <RedOp op, class T> void reduce_plainly(void *accumulator, const void *src, size_t count) {
    for (size_t i = 0; i < count; i++)
        store_bits(accumulator, i, combine(op, load_bits<T>(accumulator, i), load_bits<T>(src, i)));
}

// Multiplies complex numbers. Parts lie in vectors of their own: GCC 12 fuses products and sums of
// a plain loop.
template <class T> struct ComplexProductStep {
    using Parts = hn::CappedTag<T, max_lanes / 2>;

    static HWY_INLINE void run(T *accumulator, const T *src) {
        const Parts d;
        hn::Vec<Parts> a_re, a_im, b_re, b_im;
        hn::LoadInterleaved2(d, accumulator, a_re, a_im);
        hn::LoadInterleaved2(d, src, b_re, b_im);
        const auto re = hn::Sub(hn::Mul(a_re, b_re), hn::Mul(a_im, b_im));
        const auto im = hn::Add(hn::Mul(a_re, b_im), hn::Mul(a_im, b_re));
        hn::StoreInterleaved2(canonical_vector(re), canonical_vector(im), d, accumulator);
    }
};

// A sum of complex numbers is one of twice as many floats.
template <RedOp op, class T> void reduce_complex(void *accumulator, const void *src, size_t count) {
    using Step = ComplexProductStep<T>;
    if constexpr (op == RedOp::sum)
        reduce_floats<op, T>(accumulator, src, 2 * count);
    else if constexpr (op == RedOp::prod)
        for_each_vector<Step>(2 * hn::Lanes(typename Step::Parts()), static_cast<T *>(accumulator),
                              static_cast<const T *>(src), 2 * count);
}

// sum, prod, max and min. The type of the values determines the accumulator's type.
template <RedOp op> void reduce_op(DataType in, void *accumulator, const void *src, size_t count) {
    switch (in) {
    case DataType::int8: return reduce_plainly<op, int8_t>(accumulator, src, count);
    case DataType::uint8: return reduce_plainly<op, uint8_t>(accumulator, src, count);
    case DataType::int16: return reduce_plainly<op, int16_t>(accumulator, src, count);
    case DataType::uint16: return reduce_plainly<op, uint16_t>(accumulator, src, count);
    case DataType::int32: return reduce_plainly<op, int32_t>(accumulator, src, count);
    case DataType::uint32: return reduce_plainly<op, uint32_t>(accumulator, src, count);
    case DataType::int64: return reduce_plainly<op, int64_t>(accumulator, src, count);
    case DataType::uint64: return reduce_plainly<op, uint64_t>(accumulator, src, count);
    case DataType::float16: return reduce_floats<op, Half>(accumulator, src, count);
    case DataType::float32: return reduce_floats<op, float>(accumulator, src, count);
    case DataType::float64: return reduce_floats<op, double>(accumulator, src, count);
    case DataType::bfloat16: return reduce_floats<op, Bfloat>(accumulator, src, count);
    case DataType::float8e4m3: return reduce_floats<op, E4m3>(accumulator, src, count);
    case DataType::float8e5m2: return reduce_floats<op, E5m2>(accumulator, src, count);
    case DataType::complex64: return reduce_complex<op, float>(accumulator, src, count);
    case DataType::complex128: return reduce_complex<op, double>(accumulator, src, count);
    case DataType::boolean: return reduce_plainly<op, Boolean>(accumulator, src, count);
    case DataType::float_int:
    case DataType::double_int:
    case DataType::long_int:
    case DataType::int_int:
    case DataType::short_int: break; // they take other operations
    }
}

// Bits have no type: the bytes of the values are combined.
template <RedOp op>
void reduce_bits(DataType in, void *accumulator, const void *src, size_t count) {
    if (in == DataType::boolean) return reduce_plainly<op, Boolean>(accumulator, src, count);
    reduce_plainly<op, uint8_t>(accumulator, src, count * type_bytes(in));
}

// Zero is zero in integers with and without a sign.
template <RedOp op>
void reduce_truth(DataType in, void *accumulator, const void *src, size_t count) {
    switch (type_bytes(in)) {
    case 1: return reduce_plainly<op, uint8_t>(accumulator, src, count);
    case 2: return reduce_plainly<op, uint16_t>(accumulator, src, count);
    case 4: return reduce_plainly<op, uint32_t>(accumulator, src, count);
    default: return reduce_plainly<op, uint64_t>(accumulator, src, count);
    }
}

template <RedOp op>
void reduce_pairs(DataType in, void *accumulator, const void *src, size_t count) {
    switch (in) {
    case DataType::float_int:
        return reduce_plainly<op, IndexedValue<float>>(accumulator, src, count);
    case DataType::double_int:
        return reduce_plainly<op, IndexedValue<double>>(accumulator, src, count);
    case DataType::long_int:
        return reduce_plainly<op, IndexedValue<int64_t>>(accumulator, src, count);
    case DataType::short_int:
        return reduce_plainly<op, IndexedValue<int16_t>>(accumulator, src, count);
    default: return reduce_plainly<op, IndexedValue<int32_t>>(accumulator, src, count);
    }
}

inline void reduce(RedOp op, DataType, void *accumulator, DataType in, const void *src,
                   size_t count) {
    switch (op) {
    case RedOp::sum:
    case RedOp::avg: // `divide` divides afterwards
    case RedOp::pre_mul_sum: return reduce_op<RedOp::sum>(in, accumulator, src, count);
    case RedOp::prod: return reduce_op<RedOp::prod>(in, accumulator, src, count);
    case RedOp::max: return reduce_op<RedOp::max>(in, accumulator, src, count);
    case RedOp::min: return reduce_op<RedOp::min>(in, accumulator, src, count);
    case RedOp::bit_and: return reduce_bits<RedOp::bit_and>(in, accumulator, src, count);
    case RedOp::bit_or: return reduce_bits<RedOp::bit_or>(in, accumulator, src, count);
    case RedOp::bit_xor: return reduce_bits<RedOp::bit_xor>(in, accumulator, src, count);
    case RedOp::logical_and: return reduce_truth<RedOp::logical_and>(in, accumulator, src, count);
    case RedOp::logical_or: return reduce_truth<RedOp::logical_or>(in, accumulator, src, count);
    case RedOp::logical_xor: return reduce_truth<RedOp::logical_xor>(in, accumulator, src, count);
    case RedOp::min_loc: return reduce_pairs<RedOp::min_loc>(in, accumulator, src, count);
    case RedOp::max_loc: return reduce_pairs<RedOp::max_loc>(in, accumulator, src, count);
    case RedOp::custom: // functions of the program combine these
    case RedOp::custom_in_order: return;
    }
}

template <class T> void divide_values(void *accumulator, size_t count, uint32_t ranks) {
    for (size_t i = 0; i < count; i++)
        store_bits(accumulator, i, divided(load_bits<T>(accumulator, i), ranks));
}

inline void divide(DataType accumulator_type, void *accumulator, size_t count, uint32_t ranks) {
    with_accumulator(accumulator_type,
                     [&]<class T>(T) HWY_ATTR { divide_values<T>(accumulator, count, ranks); });
}

template <class T>
void keep_errors(void *residual, const void *values, const void *decoded, size_t count,
                 uint32_t factor) {
    for (size_t i = 0; i < count; i++)
        store_bits(residual, i,
                   kept_error(load_bits<T>(residual, i), load_bits<T>(values, i),
                              load_bits<T>(decoded, i), factor));
}

template <class T> void mask_velocity(void *velocity, const void *decoded, size_t count) {
    for (size_t i = 0; i < count; i++)
        store_bits(velocity, i,
                   masked_velocity(load_bits<T>(velocity, i), load_bits<T>(decoded, i)));
}

inline void keep_error(DataType accumulator_type, void *residual, const void *values,
                       const void *decoded, size_t count, uint32_t factor, void *velocity) {
    const bool is_wide = accumulator_type == DataType::float64;
    if (is_wide)
        keep_errors<double>(residual, values, decoded, count, factor);
    else
        keep_errors<float>(residual, values, decoded, count, factor);
    if (!velocity) return;
    if (is_wide)
        mask_velocity<double>(velocity, decoded, count);
    else
        mask_velocity<float>(velocity, decoded, count);
}

template <class T>
void add_velocities(void *values, void *velocity, const void *before, size_t count,
                    uint32_t thousandths) {
    const T momentum = momentum_of<T>(thousandths);
    for (size_t i = 0; i < count; i++) {
        const T next = next_velocity(load_bits<T>(before, i), momentum, load_bits<T>(values, i));
        store_bits(values, i, next);
        store_bits(velocity, i, finite_velocity(next));
    }
}

inline void add_velocity(DataType accumulator_type, void *values, void *velocity,
                         const void *before, size_t count, uint32_t momentum) {
    if (accumulator_type == DataType::float64)
        return add_velocities<double>(values, velocity, before, count, momentum);
    add_velocities<float>(values, velocity, before, count, momentum);
}

// ---- Copy and streaming stores

inline constexpr size_t cache_line = 64;

// Copies `bytes` bytes. Full cache lines bypass the cache; the bytes before and behind them are
// stored normally. The caller must call hwy::FlushStream once at the end.
inline void stream_bytes(std::byte *dst, const std::byte *src, size_t bytes) {
    const size_t misaligned = reinterpret_cast<uintptr_t>(dst) % cache_line;
    const size_t head = std::min(bytes, (cache_line - misaligned) % cache_line);
    const size_t lines_end = head + (bytes - head) / cache_line * cache_line;
    const hn::CappedTag<uint8_t, cache_line> d;
    const size_t step = hn::Lanes(d);
    std::memcpy(dst, src, head);
    for (size_t i = head; i < lines_end; i += step) {
        const auto v = hn::LoadU(d, reinterpret_cast<const uint8_t *>(src + i));
        hn::Stream(v, d, reinterpret_cast<uint8_t *>(dst + i));
    }
    std::memcpy(dst + lines_end, src + lines_end, bytes - lines_end);
}

// Stores the `count` values that `fill(first, count, dst)` computes. Each tile is computed in the
// first-level cache and then stored past the cache.
inline constexpr size_t stream_tile = 1024;
template <class T, class Fill>
HWY_INLINE void stream_tiles(T *dst, size_t count, const Fill &fill) {
    alignas(cache_line) T tile[stream_tile];
    for (size_t i = 0; i < count; i += stream_tile) {
        const size_t part = std::min(stream_tile, count - i);
        fill(i, part, tile);
        stream_bytes(reinterpret_cast<std::byte *>(dst + i),
                     reinterpret_cast<const std::byte *>(tile), part * sizeof(T));
    }
    hwy::FlushStream();
}

template <class In, class Out> struct ConvertStep {
    static HWY_INLINE void run(Storage<Out> *dst, const Storage<In> *src) {
        store<Out>(load<In>(src), dst);
    }
};
template <class In, class Out>
void convert(void *dst, const void *src, size_t count, bool streams) {
    auto *to = static_cast<Storage<Out> *>(dst);
    const auto *from = static_cast<const Storage<In> *>(src);
    const auto fill = [from](size_t first, size_t part, Storage<Out> *values) HWY_ATTR {
        for_each_vector<ConvertStep<In, Out>>(lanes(), values, from + first, part);
    };
    if (streams)
        stream_tiles(to, count, fill);
    else
        fill(0, count, to);
}

// Converts between fp32 and F: one of the two types is always float32.
template <class F>
void convert_float(DataType out, void *dst, const void *src, size_t count, bool streams) {
    if (out == DataType::float32)
        convert<F, float>(dst, src, count, streams);
    else
        convert<float, F>(dst, src, count, streams);
}

inline void copy(DataType out, void *dst, DataType in, const void *src, size_t count,
                 bool streams) {
    if (in == out) {
        const size_t bytes = count * type_bytes(in);
        if (dst == src || bytes == 0) return;
        if (!streams) {
            std::memcpy(dst, src, bytes);
            return;
        }
        stream_bytes(static_cast<std::byte *>(dst), static_cast<const std::byte *>(src), bytes);
        return hwy::FlushStream();
    }
    switch (in == DataType::float32 ? out : in) {
    case DataType::float16: return convert_float<Half>(out, dst, src, count, streams);
    case DataType::bfloat16: return convert_float<Bfloat>(out, dst, src, count, streams);
    case DataType::float8e4m3: return convert_float<E4m3>(out, dst, src, count, streams);
    case DataType::float8e5m2: return convert_float<E5m2>(out, dst, src, count, streams);
    default: return convert_float<double>(out, dst, src, count, streams);
    }
}

} // namespace qccl::HWY_NAMESPACE

HWY_AFTER_NAMESPACE();
#endif
