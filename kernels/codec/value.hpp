// Plain values in memory, one at a time: loads and stores values of any element type, and combines
// them with a reduction operation. Pointers need no alignment. The kernels of CPUs and GPUs use
// these functions.
#pragma once

#include "base/types.hpp"
#include "kernels/codec/number.hpp"

#include <concepts>
#include <cstddef>
#include <cstring>
#include <type_traits>

namespace qccl {

template <class T> T load_bits(const void *src, size_t i) {
    T value;
    std::memcpy(&value, static_cast<const std::byte *>(src) + i * sizeof(T), sizeof(T));
    return value;
}
template <class T> void store_bits(void *dst, size_t i, T value) {
    std::memcpy(static_cast<std::byte *>(dst) + i * sizeof(T), &value, sizeof(T));
}

// Loads a float of any format exactly. A NaN stays a NaN, but need not stay the same one.
inline double load_float(DataType in, const void *src, size_t i) {
    switch (in) {
    case DataType::float16: return widen<Half>(load_bits<uint16_t>(src, i));
    case DataType::bfloat16: return widen<Bfloat>(load_bits<uint16_t>(src, i));
    case DataType::float8e4m3: return widen<E4m3>(load_bits<uint8_t>(src, i));
    case DataType::float8e5m2: return widen<E5m2>(load_bits<uint8_t>(src, i));
    case DataType::float64: return load_bits<double>(src, i);
    default: return load_bits<float>(src, i);
    }
}

// Stores a float with one rounding; NaN becomes canonical.
inline void store_float(DataType out, void *dst, size_t i, double x) {
    switch (out) {
    case DataType::float16: return store_bits(dst, i, static_cast<uint16_t>(narrow<Half>(x)));
    case DataType::bfloat16: return store_bits(dst, i, static_cast<uint16_t>(narrow<Bfloat>(x)));
    case DataType::float8e4m3: return store_bits(dst, i, static_cast<uint8_t>(narrow<E4m3>(x)));
    case DataType::float8e5m2: return store_bits(dst, i, static_cast<uint8_t>(narrow<E5m2>(x)));
    case DataType::float64: return store_bits(dst, i, canonical(x));
    default: return store_bits(dst, i, narrow_to_float(x));
    }
}

// Calls f with a value of the C++ type that `accumulator` names.
template <class F> void with_accumulator(DataType accumulator, F &&f) {
    switch (accumulator) {
    case DataType::int8: return f(int8_t{});
    case DataType::uint8: return f(uint8_t{});
    case DataType::int32: return f(int32_t{});
    case DataType::uint32: return f(uint32_t{});
    case DataType::int64: return f(int64_t{});
    case DataType::uint64: return f(uint64_t{});
    case DataType::float64: return f(double{});
    default: return f(float{});
    }
}

// Loads a value for an accumulator of type T. Integers have the accumulator's own type.
template <class T> T load_as(DataType in, const void *src, size_t i) {
    if constexpr (std::is_integral_v<T>)
        return load_bits<T>(src, i);
    else
        return static_cast<T>(load_float(in, src, i));
}

// Combines two values; NaN need not be canonical. Integers wrap. avg only adds; the division
// follows once, at the end.
template <std::floating_point T> constexpr T combine_raw(RedOp op, T a, T b) {
    switch (op) {
    case RedOp::prod: return a * b;
    case RedOp::max: return maximum(a, b);
    case RedOp::min: return minimum(a, b);
    case RedOp::sum:
    case RedOp::avg: break;
    }
    return a + b;
}
template <std::integral T> constexpr T combine_raw(RedOp op, T a, T b) {
    const auto wide_a = static_cast<uint64_t>(a), wide_b = static_cast<uint64_t>(b);
    switch (op) {
    case RedOp::prod: return static_cast<T>(wide_a * wide_b);
    case RedOp::max: return a > b ? a : b;
    case RedOp::min: return a < b ? a : b;
    case RedOp::sum:
    case RedOp::avg: break;
    }
    return static_cast<T>(wide_a + wide_b);
}
// Combines two values; NaN becomes canonical.
template <class T> constexpr T combine(RedOp op, T a, T b) {
    if constexpr (std::floating_point<T>)
        return canonical(combine_raw(op, a, b));
    else
        return combine_raw(op, a, b);
}

// Divides truly; integers truncate toward zero.
template <class T> constexpr T divided(T a, uint32_t ranks) {
    if constexpr (std::floating_point<T>)
        return canonical(a / static_cast<T>(ranks));
    else if constexpr (std::is_signed_v<T>)
        return static_cast<T>(int64_t{a} / int64_t{ranks});
    else
        return static_cast<T>(uint64_t{a} / uint64_t{ranks});
}

} // namespace qccl
