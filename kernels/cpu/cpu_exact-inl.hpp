// Sums that are rounded once (ExactBlock). Each addition of two doubles keeps its rounding error,
// which is a double, too (Knuth, "The Art of Computer Programming", volume 2, 4.2.2), and adds it
// to the next plane. What falls off the last plane, and values that are huge or not finite, go to a
// LongAccumulator one by one. Compiled once per target.

#if defined(QCCL_CPU_EXACT_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef QCCL_CPU_EXACT_INL
#undef QCCL_CPU_EXACT_INL
#else
#define QCCL_CPU_EXACT_INL
#endif

#include "device/exact_sum.hpp"
#include "kernels/codec/reference.hpp"
#include "kernels/cpu/cpu_values-inl.hpp"

#include <hwy/highway.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

HWY_BEFORE_NAMESPACE();

namespace qccl::HWY_NAMESPACE {

using WideDoubles = hn::CappedTag<double, 8>;
using WideBits = hn::RebindToUnsigned<WideDoubles>;
using DoubleVector = hn::Vec<WideDoubles>;
using DoubleMask = hn::Mask<WideDoubles>;

// ---- Between formats and doubles

// 64 values as doubles. Those behind the last one are -0, which changes no sum.
class ExactSource {
public:
    ExactSource(DataType in, const void *src)
        : in_(in), src_(static_cast<const std::byte *>(src)) {}

    const double *block(size_t first, size_t count) {
        const std::byte *const from = src_ + first * type_bytes(in_);
        switch (in_) {
        case DataType::float64: std::memcpy(values_, from, count * sizeof(double)); break;
        case DataType::float16: widen<Half>(from, count); break;
        case DataType::bfloat16: widen<Bfloat>(from, count); break;
        case DataType::float8e4m3: widen<E4m3>(from, count); break;
        case DataType::float8e5m2: widen<E5m2>(from, count); break;
        default: widen<float>(from, count); break;
        }
        std::fill(values_ + count, std::end(values_), -0.0);
        return values_;
    }

private:
    template <class F> void widen(const std::byte *from, size_t count) {
        HWY_ALIGN float floats[ExactBlock::values];
        Storage<F> padded[ExactBlock::values] = {};
        const auto *values = reinterpret_cast<const Storage<F> *>(from);
        if (count < ExactBlock::values) {
            std::memcpy(padded, from, count * sizeof(Storage<F>));
            values = padded;
        }
        for (size_t i = 0; i < ExactBlock::values; i += lanes())
            hn::Store(load<F>(values + i), Floats(), floats + i);
        const WideDoubles d;
        const hn::Rebind<float, WideDoubles> half;
        for (size_t i = 0; i < ExactBlock::values; i += hn::Lanes(d))
            hn::Store(hn::PromoteTo(d, hn::Load(half, floats + i)), d, values_ + i);
    }

    const DataType in_;
    const std::byte *const src_;
    HWY_ALIGN double values_[ExactBlock::values];
};

// Rounds 64 doubles to floats. Highway's conversion does not give infinities on all targets.
inline void to_floats(const double *values, float *floats) {
    for (size_t i = 0; i < ExactBlock::values; i++) floats[i] = static_cast<float>(values[i]);
}

// Rounds 64 doubles to odd as floats, so that one more rounding to a narrower format is the only
// one. Returns false if a double has fewer bits as a float because it is subnormal there.
inline bool to_odd_floats(const double *values, float *floats) {
    const WideDoubles d;
    const WideBits bits;
    HWY_ALIGN double rounded[ExactBlock::values];
    constexpr uint64_t dropped = (uint64_t{1} << (52 - 23)) - 1;
    for (size_t i = 0; i < ExactBlock::values; i += hn::Lanes(d)) {
        const DoubleVector x = hn::Load(d, values + i);
        const DoubleVector size = hn::Abs(x);
        const auto is_small =
            hn::And(hn::Lt(size, hn::Set(d, 0x1p-126)), hn::Ne(size, hn::Zero(d)));
        if (!hn::AllFalse(d, is_small)) return false;
        const auto pattern = hn::BitCast(bits, x);
        const auto rest = hn::And(pattern, hn::Set(bits, dropped));
        const auto kept = hn::AndNot(hn::Set(bits, dropped), pattern);
        const auto odd =
            hn::IfThenZeroElse(hn::Eq(rest, hn::Zero(bits)), hn::Set(bits, dropped + 1));
        hn::Store(hn::BitCast(d, hn::Or(kept, odd)), d, rounded + i);
    }
    to_floats(rounded, floats);
    return true;
}

template <class F> void store_rounded(const double *values, void *dst, DataType out, size_t count) {
    HWY_ALIGN float floats[ExactBlock::values];
    Storage<F> narrow[ExactBlock::values];
    if (!to_odd_floats(values, floats)) {
        for (size_t i = 0; i < count; i++) store_float(out, dst, i, values[i]);
        return;
    }
    for (size_t i = 0; i < ExactBlock::values; i += lanes())
        store<F>(hn::Load(Floats(), floats + i), narrow + i);
    std::memcpy(dst, narrow, count * sizeof(Storage<F>));
}

// Rounds 64 doubles to a format and stores `count` of them.
inline void store_doubles(DataType out, void *dst, const double *values, size_t count) {
    HWY_ALIGN float floats[ExactBlock::values];
    switch (out) {
    case DataType::float64: std::memcpy(dst, values, count * sizeof(double)); return;
    case DataType::float16: return store_rounded<Half>(values, dst, out, count);
    case DataType::bfloat16: return store_rounded<Bfloat>(values, dst, out, count);
    case DataType::float8e4m3: return store_rounded<E4m3>(values, dst, out, count);
    case DataType::float8e5m2: return store_rounded<E5m2>(values, dst, out, count);
    default: break;
    }
    to_floats(values, floats);
    std::memcpy(dst, floats, count * sizeof(float));
}

// ---- Sums

// Adds `value` to `sum`, and returns what the rounding has lost.
HWY_INLINE DoubleVector add_and_lose(DoubleVector &sum, DoubleVector value) {
    const DoubleVector before = sum;
    sum = hn::Add(before, value);
    const DoubleVector value_in_sum = hn::Sub(sum, before);
    const DoubleVector before_in_sum = hn::Sub(sum, value_in_sum);
    return hn::Add(hn::Sub(before, before_in_sum), hn::Sub(value, value_in_sum));
}

// Adds the lanes of `x` to the LongAccumulators of values from `first` on, unless they are zero.
inline void add_to_longs(ExactBlock &block, size_t first, DoubleVector x) {
    const WideDoubles d;
    HWY_ALIGN double values[8];
    hn::Store(x, d, values);
    for (size_t i = 0; i < hn::Lanes(d); i++)
        if (values[i] != 0) block.long_of(first + i).add(values[i]);
}

// Takes out the values that the planes cannot take. NaN compares false.
HWY_INLINE DoubleVector keep_small(ExactBlock &block, size_t first, DoubleVector x) {
    const WideDoubles d;
    const DoubleMask is_small = hn::Lt(hn::Abs(x), hn::Set(d, least_long_value));
    if (hn::AllTrue(d, is_small)) [[likely]]
        return x;
    add_to_longs(block, first, hn::IfThenZeroElse(is_small, x));
    // A value that was taken out is no zero, and +0 says so.
    return hn::IfThenElse(is_small, x, hn::Zero(d));
}

HWY_INLINE void deepen(ExactBlock &block, size_t depth) {
    if (block.depth >= depth) return;
    std::memset(block.plane[depth - 1], 0, sizeof block.plane[0]);
    block.depth = depth;
}

HWY_INLINE DoubleVector add_to_plane(ExactBlock &block, size_t plane, size_t first,
                                     DoubleVector x) {
    const WideDoubles d;
    DoubleVector sum = hn::Load(d, block.plane[plane] + first);
    const DoubleVector rest = add_and_lose(sum, x);
    hn::Store(sum, d, block.plane[plane] + first);
    return rest;
}

HWY_INLINE bool are_zero(DoubleVector x) {
    const WideDoubles d;
    return hn::AllTrue(d, hn::Eq(x, hn::Zero(d)));
}

HWY_INLINE void add_vector(ExactBlock &block, size_t first, DoubleVector value) {
    DoubleVector rest = add_to_plane(block, 0, first, keep_small(block, first, value));
    for (size_t plane = 1; plane < ExactBlock::planes; plane++) {
        if (are_zero(rest)) return;
        deepen(block, plane + 1);
        rest = add_to_plane(block, plane, first, rest);
    }
    if (!are_zero(rest)) add_to_longs(block, first, rest);
}

// Calls each(block, first, count) for the blocks of `count` sums.
template <class Blocks, class Each>
HWY_INLINE void for_each_block(Blocks *blocks, size_t count, const Each &each) {
    for (size_t i = 0; i < count; i += ExactBlock::values)
        each(blocks[i / ExactBlock::values], i, std::min(count - i, ExactBlock::values));
}

inline void begin_exact(DataType in, void *sums, const void *src, size_t count) {
    const WideDoubles d;
    ExactSource source(in, src);
    for_each_block(static_cast<ExactBlock *>(sums), count,
                   [&](ExactBlock &block, size_t first, size_t values) HWY_ATTR {
                       const double *const x = source.block(first, values);
                       block.long_values = 0;
                       block.depth = 1;
                       for (size_t i = 0; i < ExactBlock::values; i += hn::Lanes(d))
                           hn::Store(keep_small(block, i, hn::Load(d, x + i)), d,
                                     block.plane[0] + i);
                   });
}

inline void add_exact(DataType in, void *sums, const void *src, size_t count) {
    const WideDoubles d;
    ExactSource source(in, src);
    for_each_block(static_cast<ExactBlock *>(sums), count,
                   [&](ExactBlock &block, size_t first, size_t values) HWY_ATTR {
                       const double *const x = source.block(first, values);
                       for (size_t i = 0; i < ExactBlock::values; i += hn::Lanes(d))
                           add_vector(block, i, hn::Load(d, x + i));
                   });
}

// ---- Results

// Rounds sums of two doubles to odd.
HWY_INLINE DoubleVector round_to_odd(DoubleVector a, DoubleVector b) {
    const WideDoubles d;
    const WideBits bits;
    DoubleVector sum = a;
    const DoubleVector lost = add_and_lose(sum, b);
    const auto pattern = hn::BitCast(bits, sum);
    const auto one = hn::Set(bits, 1);
    const auto is_even = hn::Eq(hn::And(pattern, one), hn::Zero(bits));
    const auto is_rounded = hn::RebindMask(bits, hn::Ne(lost, hn::Zero(d)));
    // The last place moves away from zero if the error has the sum's sign.
    const auto signs = hn::Xor(pattern, hn::BitCast(bits, lost));
    const auto is_towards_zero = hn::Ne(hn::ShiftRight<63>(signs), hn::Zero(bits));
    const auto moved =
        hn::IfThenElse(is_towards_zero, hn::Sub(pattern, one), hn::Add(pattern, one));
    return hn::BitCast(d, hn::IfThenElse(hn::And(is_rounded, is_even), moved, pattern));
}

HWY_INLINE bool has_long(const ExactBlock &block, size_t first) {
    const uint64_t lanes_here = (uint64_t{1} << hn::Lanes(WideDoubles())) - 1;
    return (block.long_values >> first & lanes_here) != 0;
}

// The sums from `first` on, as doubles that store_doubles rounds to the results.
HWY_INLINE void results_of(const ExactBlock &block, size_t first, DataType out, uint32_t ranks,
                           double *results) {
    const WideDoubles d;
    const bool is_plain = block.depth < 3 || are_zero(hn::Load(d, block.plane[2] + first));
    if (!is_plain || has_long(block, first)) {
        for (size_t i = first; i < first + hn::Lanes(d); i++)
            results[i] = exact_result(block.total(i), out, ranks);
        return;
    }
    DoubleVector sum = hn::Load(d, block.plane[0] + first);
    if (block.depth > 1) {
        const DoubleVector rest = hn::Load(d, block.plane[1] + first);
        const bool is_last = out == DataType::float64 || ranks != 1;
        const DoubleVector whole = is_last ? hn::Add(sum, rest) : round_to_odd(sum, rest);
        sum = hn::IfThenElse(hn::Eq(rest, hn::Zero(d)), sum, whole); // keeps -0
    }
    if (ranks != 1) sum = hn::Div(sum, hn::Set(d, static_cast<double>(ranks)));
    hn::Store(sum, d, results + first);
}

inline void round_exact(DataType out, void *dst, const void *sums, size_t count, uint32_t ranks) {
    HWY_ALIGN double results[ExactBlock::values];
    const WideDoubles d;
    for_each_block(static_cast<const ExactBlock *>(sums), count,
                   [&](const ExactBlock &block, size_t first, size_t values) HWY_ATTR {
                       for (size_t i = 0; i < ExactBlock::values; i += hn::Lanes(d))
                           results_of(block, i, out, ranks, results);
                       store_doubles(out, behind(dst, out, first), results, values);
                   });
}

} // namespace qccl::HWY_NAMESPACE

HWY_AFTER_NAMESPACE();
#endif
