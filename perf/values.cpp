// Converts each type from and to double or int64_t, and lists the precision of each type.
#include "perf/values.hpp"

#include "kernels/number.hpp"

#include <cmath>
#include <cstring>

namespace qccl::perf {

template <class T, class Out> static void load_as(const std::byte *src, size_t count, Out *dst) {
    for (size_t i = 0; i < count; i++) {
        T value;
        std::memcpy(&value, src + i * sizeof(T), sizeof(T));
        dst[i] = static_cast<Out>(value);
    }
}

template <class T, class In> static void store_as(const In *src, size_t count, std::byte *dst) {
    for (size_t i = 0; i < count; i++) {
        const auto value = static_cast<T>(src[i]);
        std::memcpy(dst + i * sizeof(T), &value, sizeof(T));
    }
}

// F is a format of number.hpp; Bits is the integer type that holds it.
template <class F, class Bits>
static void load_small(const std::byte *src, size_t count, double *dst) {
    for (size_t i = 0; i < count; i++) {
        Bits bits;
        std::memcpy(&bits, src + i * sizeof bits, sizeof bits);
        dst[i] = static_cast<double>(widen<F>(bits));
    }
}

template <class F, class Bits>
static void store_small(const double *src, size_t count, std::byte *dst) {
    for (size_t i = 0; i < count; i++) {
        const auto bits = static_cast<Bits>(narrow<F>(src[i]));
        std::memcpy(dst + i * sizeof bits, &bits, sizeof bits);
    }
}

void load_reals(DataType type, const std::byte *src, size_t count, double *dst) {
    switch (type) {
    case DataType::float16: return load_small<Half, uint16_t>(src, count, dst);
    case DataType::bfloat16: return load_small<Bfloat, uint16_t>(src, count, dst);
    case DataType::float8e4m3: return load_small<E4m3, uint8_t>(src, count, dst);
    case DataType::float8e5m2: return load_small<E5m2, uint8_t>(src, count, dst);
    case DataType::float32: return load_as<float>(src, count, dst);
    default: return load_as<double>(src, count, dst);
    }
}

void store_reals(DataType type, const double *src, size_t count, std::byte *dst) {
    switch (type) {
    case DataType::float16: return store_small<Half, uint16_t>(src, count, dst);
    case DataType::bfloat16: return store_small<Bfloat, uint16_t>(src, count, dst);
    case DataType::float8e4m3: return store_small<E4m3, uint8_t>(src, count, dst);
    case DataType::float8e5m2: return store_small<E5m2, uint8_t>(src, count, dst);
    case DataType::float32: return store_as<float>(src, count, dst);
    default: return store_as<double>(src, count, dst);
    }
}

void load_integers(DataType type, const std::byte *src, size_t count, int64_t *dst) {
    switch (type) {
    case DataType::int8: return load_as<int8_t>(src, count, dst);
    case DataType::uint8: return load_as<uint8_t>(src, count, dst);
    case DataType::int32: return load_as<int32_t>(src, count, dst);
    case DataType::uint32: return load_as<uint32_t>(src, count, dst);
    default: return load_as<int64_t>(src, count, dst);
    }
}

void store_integers(DataType type, const int64_t *src, size_t count, std::byte *dst) {
    switch (type_bytes(type)) {
    case 1: return store_as<uint8_t>(src, count, dst);
    case 4: return store_as<uint32_t>(src, count, dst);
    default: return store_as<uint64_t>(src, count, dst);
    }
}

struct Precision {
    int fraction_bits;
    int smallest_exponent; // exponent of the smallest subnormal number
};

static Precision precision(DataType type) {
    switch (type) {
    case DataType::float16: return {10, -24};
    case DataType::bfloat16: return {7, -133};
    case DataType::float8e4m3: return {3, -9};
    case DataType::float8e5m2: return {2, -16};
    case DataType::float32: return {23, -149};
    default: return {52, -1074};
    }
}

double unit_roundoff(DataType type) {
    return info(type).is_float ? std::ldexp(1.0, -precision(type).fraction_bits - 1) : 0;
}

double smallest_step(DataType type) {
    return info(type).is_float ? std::ldexp(1.0, precision(type).smallest_exponent) : 0;
}

} // namespace qccl::perf
