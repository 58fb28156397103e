// Implements reduce (accumulator op value) and divide for every type. Compiled once per target.
#if defined(QCCL_CPU_REDUCE_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef QCCL_CPU_REDUCE_INL
#undef QCCL_CPU_REDUCE_INL
#else
#define QCCL_CPU_REDUCE_INL
#endif

#include "kernels/cpu_number-inl.hpp"
#include "kernels/value.hpp"

HWY_BEFORE_NAMESPACE();
namespace qccl::HWY_NAMESPACE {

using Doubles = hn::CappedTag<double, max_lanes>;

// combine() of value.hpp for vectors: NaN becomes canonical, -0 < +0.
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

// Plain loops, which compilers vectorise: Highway has no products of 8 and 64 bits.
template <RedOp op, class T>
void reduce_integers(void *accumulator, const void *src, size_t count) {
    for (size_t i = 0; i < count; i++)
        store_bits(accumulator, i, combine(op, load_bits<T>(accumulator, i), load_bits<T>(src, i)));
}

// The type of the values determines the accumulator's type.
template <RedOp op> void reduce_op(DataType in, void *accumulator, const void *src, size_t count) {
    switch (in) {
    case DataType::int8: return reduce_integers<op, int8_t>(accumulator, src, count);
    case DataType::uint8: return reduce_integers<op, uint8_t>(accumulator, src, count);
    case DataType::int32: return reduce_integers<op, int32_t>(accumulator, src, count);
    case DataType::uint32: return reduce_integers<op, uint32_t>(accumulator, src, count);
    case DataType::int64: return reduce_integers<op, int64_t>(accumulator, src, count);
    case DataType::uint64: return reduce_integers<op, uint64_t>(accumulator, src, count);
    case DataType::float16: return reduce_floats<op, Half>(accumulator, src, count);
    case DataType::float32: return reduce_floats<op, float>(accumulator, src, count);
    case DataType::float64: return reduce_floats<op, double>(accumulator, src, count);
    case DataType::bfloat16: return reduce_floats<op, Bfloat>(accumulator, src, count);
    case DataType::float8e4m3: return reduce_floats<op, E4m3>(accumulator, src, count);
    case DataType::float8e5m2: return reduce_floats<op, E5m2>(accumulator, src, count);
    }
}

inline void reduce(RedOp op, DataType, void *accumulator, DataType in, const void *src,
                   size_t count) {
    switch (op) {
    case RedOp::sum:
    case RedOp::avg:
        return reduce_op<RedOp::sum>(in, accumulator, src, count); // `divide` divides afterwards
    case RedOp::prod: return reduce_op<RedOp::prod>(in, accumulator, src, count);
    case RedOp::max: return reduce_op<RedOp::max>(in, accumulator, src, count);
    case RedOp::min: return reduce_op<RedOp::min>(in, accumulator, src, count);
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

} // namespace qccl::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
