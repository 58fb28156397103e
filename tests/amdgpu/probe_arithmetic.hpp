// The arithmetic that each thread of the probe kernels does with its values. The file is compiled
// for the GPU, and by the host compiler to compute the expected results (machine_code_test).
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __HIP__
#define PROBED __attribute__((host, device))
#else
#define PROBED
#include "kernels/codec/number.hpp"
#endif

namespace probe {

using u32 = uint32_t;
using u64 = uint64_t;

#ifdef __HIP__
using Half = _Float16;
using HalfPair = _Float16 __attribute__((vector_size(4)));
#else
// Not every host compiler has 16-bit floats. The sum or product of two of them is exact as a
// double.
class Half {
public:
    explicit Half(double x) : pattern_(qccl::narrow<qccl::Half>(x)) {}
    explicit operator float() const { return qccl::widen<qccl::Half>(pattern_); }
    friend Half operator+(Half a, Half b) { return Half(a.wide() + b.wide()); }
    friend Half operator-(Half a, Half b) { return Half(a.wide() - b.wide()); }
    friend Half operator*(Half a, Half b) { return Half(a.wide() * b.wide()); }
    friend bool operator<(Half a, Half b) { return a.wide() < b.wide(); }

private:
    double wide() const { return static_cast<float>(*this); }
    u32 pattern_;
};
struct HalfPair {
    Half at[2];
    Half operator[](int i) const { return at[i]; }
    friend HalfPair operator+(HalfPair a, HalfPair b) { return {{a[0] + b[0], a[1] + b[1]}}; }
    friend HalfPair operator-(HalfPair a, HalfPair b) { return {{a[0] - b[0], a[1] - b[1]}}; }
    friend HalfPair operator*(HalfPair a, HalfPair b) { return {{a[0] * b[0], a[1] * b[1]}}; }
};
#endif

template <class To, class From> constexpr To as(From from) { return __builtin_bit_cast(To, from); }
// The processor chooses which NaN an operation gives, so all NaNs count as one.
constexpr u32 bits(float x) { return x == x ? as<u32>(x) : 0x7FC00000; }
constexpr u64 bits(double x) { return x == x ? as<u64>(x) : u64{0x7FF8} << 48; }

// ---- Floats: operations whose results are defined to the bit.

struct Divide {
    PROBED static u32 of(float a, float b) { return bits(a / b); }
};
struct Root {
    PROBED static u32 of(float a, float) { return bits(__builtin_sqrtf(a)); }
};
struct MultiplyThenAdd {
    PROBED static u32 of(float a, float b) { return bits(a * b + a); }
};
struct Fused {
    PROBED static u32 of(float a, float b) { return bits(__builtin_fmaf(a, b, -a)); }
};
struct Round {
    PROBED static u32 of(float a, float b) {
        return bits(__builtin_rintf(a) - __builtin_floorf(b)) ^ bits(__builtin_truncf(a * 8));
    }
};
struct Extremes {
    PROBED static u32 of(float a, float b) {
        const float low = a < b ? a : b, high = a > b ? a : b;
        return bits(low) ^ bits(high + __builtin_fabsf(a)) >> 1;
    }
};
struct ToInteger {
    PROBED static u32 of(float a, float b) {
        const float x = a < -1e9F ? -1e9F : a > 1e9F ? 1e9F : a == a ? a : 0;
        const float y = b > 4e9F ? 4e9F : b > 0 ? b : 0;
        return static_cast<u32>(static_cast<int32_t>(x)) ^ static_cast<u32>(y);
    }
};
struct FromInteger {
    PROBED static u32 of(float a, float b) {
        const u32 x = as<u32>(a);
        const u64 wide = u64{x} << 32 | as<u32>(b);
        return bits(static_cast<float>(x)) ^ bits(static_cast<float>(static_cast<int32_t>(x))) ^
               bits(static_cast<float>(wide)) ^ bits(static_cast<float>(x >> 8 & 0xFF));
    }
};
struct Halves {
    PROBED static u32 of(float a, float b) {
        const auto x = static_cast<Half>(a), y = static_cast<Half>(b);
        const Half sum = x + y, product = x * y;
        const float back = static_cast<float>(sum) - static_cast<float>(product);
        return bits(back) ^ bits(static_cast<float>(x < y ? x : y)) << 1;
    }
};
struct DivideDoubles {
    PROBED static u32 of(float a, float b) {
        // The divisor never has all mantissa bits set: the reciprocal of such a divisor is not
        // exact (lane_numbers.hpp).
        const double x = a, y = static_cast<double>(b) * 3;
        const u64 all = bits(x / y) ^ bits(__builtin_sqrt(x)) ^ bits(x * y - x);
        return static_cast<u32>(all ^ all >> 32) ^ bits(static_cast<float>(x / y));
    }
};

// ---- Two 16-bit values, both in one operation and one by one.

struct PackedHalves {
    PROBED static u32 of(float a, float b) {
        const HalfPair x = {static_cast<Half>(a), static_cast<Half>(b)}, y = x * x - x;
        const HalfPair swapped = {y[1], y[0]}, sum = swapped + x;
        return bits(static_cast<float>(sum[0])) ^ bits(static_cast<float>(sum[1])) << 1;
    }
};
struct PackedIntegers {
    using Pair = uint16_t __attribute__((vector_size(4)));
    PROBED static u32 of(float a, float b) {
        const Pair x = as<Pair>(a), y = as<Pair>(b), shifts = y & 15;
        const Pair product = x * y + x, shifted = (product << shifts) ^ (x >> shifts);
        const Pair larger = {x[0] < y[1] ? y[1] : x[0], x[1] < y[0] ? y[0] : x[1]};
        return as<u32>(shifted - larger);
    }
};
struct SmallIntegers {
    PROBED static u32 of(float a, float b) {
        const u32 x = as<u32>(a), y = as<u32>(b);
        uint16_t word[4] = {};
        for (u32 i = 0; i < 4; ++i) {
            const auto low = static_cast<uint16_t>(x >> (4 * i)),
                       high = static_cast<uint16_t>(y >> (8 * i));
            const auto least = low < high ? low : high;
            word[i] = static_cast<uint16_t>(static_cast<u32>(least) << (i + 1));
            word[i] = static_cast<uint16_t>(word[i] | (high >> 3));
            word[i] = static_cast<uint16_t>(u32{word[i]} * low + (word[i] & 0xFF0));
        }
        return (u32{word[0]} << 16 | word[1]) ^ (u32{word[3]} << 16 | word[2]);
    }
};

// ---- Integers.

struct WideProduct {
    PROBED static u32 of(float a, float b) {
        const u64 x = as<u32>(a) * u64{0xD2511F53}, y = as<u32>(b) * x + 12345;
        return static_cast<u32>(y >> 32) ^ static_cast<u32>(y) ^ static_cast<u32>(x >> 17);
    }
};
struct WideDivision {
    PROBED static u32 of(float a, float b) {
        const u64 x = u64{as<u32>(a)} * as<u32>(b) + 7, y = as<u32>(b) | 1;
        const auto s = static_cast<int32_t>(as<u32>(a)), t = static_cast<int32_t>(y >> 8 | 1);
        return static_cast<u32>(x / (y * 5 + 1) + x % y) + static_cast<u32>(s / t) -
               static_cast<u32>(s % t) + as<u32>(a) / static_cast<u32>(y);
    }
};
struct BitCounts {
    PROBED static u32 of(float a, float b) {
        const u32 x = as<u32>(a) | 1, y = as<u32>(b);
        const u64 wide = u64{y} << 32 | x;
        return static_cast<u32>(__builtin_popcount(y) + __builtin_clz(x) * 3 +
                                __builtin_ctz(x) * 5 + __builtin_popcountll(wide) * 7 +
                                __builtin_clzll(wide) * 11) +
               (x << (y & 31)) + (y >> (x & 31)) + static_cast<u32>(wide >> (y & 63)) +
               static_cast<u32>(static_cast<int64_t>(wide) >> (x & 63)) + __builtin_bswap32(x) +
               (x << 7 | x >> 25);
    }
};

// Returns one word of the result of ten rounds of Philox 4x32.
PROBED inline u32 philox(u32 counter, u32 key0, u32 key1) {
    u32 word[4] = {counter, 1, 2, 3};
    for (int round = 0; round < 10; ++round) {
        const u64 left = u64{0xD2511F53} * word[0], right = u64{0xCD9E8D57} * word[2];
        const u32 next[4] = {static_cast<u32>(right >> 32) ^ word[1] ^ key0,
                             static_cast<u32>(right), static_cast<u32>(left >> 32) ^ word[3] ^ key1,
                             static_cast<u32>(left)};
        for (int i = 0; i < 4; ++i) word[i] = next[i];
        key0 += 0x9E3779B9;
        key1 += 0xBB67AE85;
    }
    return word[0] ^ word[3];
}

// ---- Small floats made with integer operations: 8 bits with a fraction of 3, rounded to nearest
// even, at most 448.
struct EightBits {
    PROBED static u32 encode(float x) {
        const u32 pattern = as<u32>(x), sign = pattern >> 24 & 0x80;
        u32 magnitude = pattern & 0x7FFFFFFF;
        if (magnitude > 0x7F800000) return sign | 0x7F;
        if (magnitude >= 0x43E80000) return sign | 0x7E;
        if (magnitude < 0x3C800000) // below the smallest normal number, in units of 2^-9
            return sign | static_cast<u32>(__builtin_rintf(as<float>(magnitude) * 512));
        magnitude += 0x7FFFF + (magnitude >> 20 & 1);
        return sign | ((magnitude >> 20) - (120U << 3));
    }
    PROBED static u32 of(float a, float b) { return encode(a) | encode(b) << 8; }
};

// ---- Divergence: each lane loops as often as its value needs.
struct Collatz {
    PROBED static u32 of(float a, float) {
        u32 x = (as<u32>(a) & 0xFFF) + 1, steps = 0;
        while (x != 1) {
            x = (x & 1) != 0 ? 3 * x + 1 : x / 2;
            if (++steps > 200) return x;
        }
        return steps;
    }
};

// ---- A private array of each thread, indexed by values that are known only at run time.
struct PrivateArray {
    PROBED static u32 of(float a, float b) {
        u32 table[24] = {};
        const u32 x = as<u32>(a), y = as<u32>(b);
        for (u32 i = 0; i < 24; ++i) table[(x + i * 5) % 24] += i * y;
        for (u32 i = 0; i < 24; ++i) table[(y + i) % 24] ^= table[(x + 7 * i) % 24];
        return table[x % 24] + table[y % 24];
    }
};

} // namespace probe
