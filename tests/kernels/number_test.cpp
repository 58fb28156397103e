// Tests kernels/codec/number: every value of every narrow format, every rounding into the format,
// and cases in which rounding twice would be wrong.
#include "tests/kit/qtest.hpp"

#include "kernels/codec/number.hpp"

#include <cmath>
#include <cstdlib>
#include <vector>

using namespace qccl;

namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

template <class F> constexpr uint32_t patterns = F::sign * 2;

// Returns the finite number of a pattern, from 0 up, by the format's definition: fraction *
// 2^exponent.
template <class F> double magnitude_of(uint32_t pattern) {
    const int bias = (1 << (F::exponent_bits - 1)) - 1;
    const int field = static_cast<int>(pattern >> F::fraction_bits);
    const double fraction = std::ldexp(pattern & ((1U << F::fraction_bits) - 1), -F::fraction_bits);
    return field == 0 ? std::ldexp(fraction, 1 - bias) : std::ldexp(1 + fraction, field - bias);
}

template <class F> void check_every_number() {
    for (uint32_t pattern = 0; pattern < patterns<F>; pattern++) {
        const uint32_t magnitude = pattern & (F::sign - 1), sign = pattern & F::sign;
        const float value = widen<F>(pattern);
        CHECK_EQ(canonical_pattern<F>(pattern), narrow<F>(value));
        if (magnitude <= F::largest) {
            CHECK_EQ(static_cast<double>(value),
                     sign != 0 ? -magnitude_of<F>(magnitude) : magnitude_of<F>(magnitude));
            CHECK_EQ(std::signbit(value), sign != 0);
            CHECK_EQ(narrow<F>(value), pattern);
        } else if (magnitude == F::infinity && F::infinity != F::nan) {
            CHECK_EQ(static_cast<double>(value), sign != 0 ? -infinity : infinity);
            CHECK_EQ(narrow<F>(value), pattern);
        } else {
            CHECK_EQ(std::bit_cast<uint32_t>(value), float_nan);
            CHECK_EQ(narrow<F>(value), F::nan);
        }
    }
}

// Of all 65536 draws, as many round up as the value is away from the lower neighbour. Numbers of
// the format stay, and a float gives what the double of the same value gives.
template <class F> void check_every_chance() {
    for (uint32_t low = 0; low<F::largest; low += F::sign> 0x80 ? 61 : 1) {
        const double a = magnitude_of<F>(low), b = magnitude_of<F>(low + 1);
        for (const uint32_t part : {0U, 1U, 1000U, 32768U, 65535U}) {
            const double x = a + (b - a) * (part / 65536.0);
            for (const uint32_t k : {0U, 1U, 32768U, 64535U, 64536U, 65534U, 65535U}) {
                const uint32_t wanted = low + (part + k >= 65536 ? 1 : 0);
                CHECK_EQ(narrow_by_chance<F>(x, k), wanted);
                CHECK_EQ(narrow_by_chance<F>(-x, k), F::sign | wanted);
                if (static_cast<double>(static_cast<float>(x)) == x)
                    CHECK_EQ(narrow_by_chance<F>(static_cast<float>(x), k), wanted);
            }
            // What is less than 2^-16 of a step does not carry.
            const double more = std::nextafter(x, infinity);
            CHECK_EQ(narrow_by_chance<F>(more, 65535 - part), low);
            CHECK_EQ(narrow_by_chance<F>(std::nextafter(b, 0), 0), low);
        }
    }
}

template <class F> void check_ends_of_chance() {
    const double most = magnitude_of<F>(F::largest);
    for (const uint32_t k : {0U, 65535U}) {
        for (const double beyond : {most, most * 1.01, most * 1e3, 1e300}) {
            CHECK_EQ(narrow_by_chance<F>(beyond, k), F::largest);
            CHECK_EQ(narrow_by_chance<F>(-beyond, k), F::sign | F::largest);
        }
        const uint32_t end = F::infinity == F::nan ? F::nan : F::infinity;
        CHECK_EQ(narrow_by_chance<F>(infinity, k), end);
        CHECK_EQ(narrow_by_chance<F>(std::numeric_limits<float>::infinity(), k), end);
        CHECK_EQ(narrow_by_chance<F>(std::numeric_limits<float>::max(), k), F::largest);
        CHECK_EQ(narrow_by_chance<F>(-infinity, k), F::infinity == F::nan ? F::nan : F::sign | end);
        CHECK_EQ(narrow_by_chance<F>(std::numeric_limits<double>::quiet_NaN(), k), F::nan);
        CHECK_EQ(narrow_by_chance<F>(-std::numeric_limits<float>::quiet_NaN(), k), F::nan);
        CHECK_EQ(narrow_by_chance<F>(0.0, k), 0U);
        CHECK_EQ(narrow_by_chance<F>(-0.0F, k), F::sign);
        CHECK_EQ(narrow_by_chance<F>(1e-310, k), 0U);
        CHECK_EQ(narrow_by_chance<F>(-5e-324, k), F::sign);
    }
}

// Between neighbours: a value below the middle rounds down, one above it up, and the middle to
// even. The middle and the doubles next to it are no fp32 numbers if the neighbours are subnormal
// or close, so the rounding must go from double in one step.
template <class F> void check_every_tie() {
    for (uint32_t low = 0; low < F::largest; low++) {
        const double a = magnitude_of<F>(low), b = magnitude_of<F>(low + 1), middle = (a + b) / 2;
        CHECK_EQ(narrow<F>(middle), low + (low & 1));
        CHECK_EQ(narrow<F>(std::nextafter(middle, 0)), low);
        CHECK_EQ(narrow<F>(std::nextafter(middle, infinity)), low + 1);
        CHECK_EQ(narrow<F>(-middle), F::sign | (low + (low & 1)));
    }
}

template <class F> void check_overflow() {
    const double largest = magnitude_of<F>(F::largest);
    const double step = largest - magnitude_of<F>(F::largest - 1);
    const uint32_t beyond = F::stored == Overflow::saturate ? F::largest : F::infinity;
    CHECK_EQ(narrow<F>(std::nextafter(largest + step / 2, 0)), F::largest);
    CHECK_EQ(narrow<F>(largest + step), beyond);
    CHECK_EQ(narrow<F>(-1e300), F::sign | beyond);
    CHECK_EQ((narrow<F, Overflow::saturate>(largest + step)), F::largest);
    CHECK_EQ((narrow<F, Overflow::saturate>(-1e300)), F::sign | F::largest);
    const bool has_infinity = F::infinity != F::nan;
    CHECK_EQ((narrow<F, Overflow::saturate>(infinity)), F::infinity);
    CHECK_EQ((narrow<F, Overflow::saturate>(-infinity)),
             has_infinity ? F::sign | F::infinity : F::nan);
    CHECK_EQ(narrow<F>(-std::numeric_limits<double>::quiet_NaN()), F::nan);
    CHECK_EQ(narrow<F>(std::bit_cast<double>(uint64_t{0x7FF0000000000001})), F::nan);
}

// A double just above a tie, which fp32 rounds to the tie: rounding twice would give the even
// neighbour, rounding once gives the upper one.
template <class F> void check_no_double_rounding() {
    for (uint32_t low = F::largest / 2; low < F::largest / 2 + 16; low += 1) {
        const double middle = (magnitude_of<F>(low) + magnitude_of<F>(low + 1)) / 2;
        const double above = middle * (1 + 0x1p-40), below = middle * (1 - 0x1p-40);
        CHECK_EQ(static_cast<double>(static_cast<float>(above)), middle);
        CHECK_EQ(narrow<F>(above), low + 1);
        CHECK_EQ(narrow<F>(below), low);
    }
}

// Rounding from float equals rounding from double: for every 4099th float (all with QTEST_FULL),
// and next to every tie.
template <class F> void check_float_twin() {
    const auto agree = [](uint32_t pattern) {
        const float value = std::bit_cast<float>(pattern);
        const double wide = value;
        CHECK_EQ(narrow<F>(value), narrow<F>(wide));
        CHECK_EQ((narrow<F, Overflow::saturate>(value)), (narrow<F, Overflow::saturate>(wide)));
    };
    const uint64_t step = std::getenv("QTEST_FULL") != nullptr ? 1 : 4099;
    for (uint64_t pattern = 0; pattern <= ~0U; pattern += step)
        agree(static_cast<uint32_t>(pattern));
    for (uint32_t low = 0; low <= F::largest; low++) {
        const double beyond = low < F::largest
                                  ? magnitude_of<F>(low + 1)
                                  : 2 * magnitude_of<F>(low) - magnitude_of<F>(low - 1);
        const auto middle = static_cast<float>((magnitude_of<F>(low) + beyond) / 2);
        for (uint32_t i = 0; i < 3; i++) {
            agree(std::bit_cast<uint32_t>(middle) - 1 + i);
            agree((std::bit_cast<uint32_t>(middle) - 1 + i) | 0x80000000U);
        }
    }
}

template <class F> void check_format() {
    check_every_number<F>();
    check_every_tie<F>();
    check_overflow<F>();
    check_no_double_rounding<F>();
    check_float_twin<F>();
    check_every_chance<F>();
    check_ends_of_chance<F>();
}

} // namespace

static void half_is_right() { check_format<Half>(); }
static void bfloat_is_right() { check_format<Bfloat>(); }
static void e4m3_is_right() { check_format<E4m3>(); }
static void e5m2_is_right() { check_format<E5m2>(); }

static void pinned_values() {
    CHECK_EQ(widen<Half>(0x3C00), 1.0F);
    CHECK_EQ(widen<Half>(0x7BFF), 65504.0F);
    CHECK_EQ(widen<Half>(0x0001), 0x1p-24F);
    CHECK_EQ(widen<Bfloat>(0x3F80), 1.0F);
    CHECK_EQ(widen<E4m3>(0x7E), 448.0F);
    CHECK_EQ(widen<E4m3>(0x01), 0x1p-9F);
    CHECK_EQ(widen<E5m2>(0x7B), 57344.0F);
    CHECK_EQ(widen<E5m2>(0x01), 0x1p-16F);
    CHECK_EQ(narrow<Half>(65519.9), 0x7BFFU);
    CHECK_EQ(narrow<Half>(65520.0), 0x7C00U);
    CHECK_EQ(narrow<E4m3>(464.0), 0x7EU);
    CHECK_EQ(narrow<Half>(0x1p-25), 0U);
    CHECK_EQ(narrow<Half>(-0x1.8p-25), 0x8001U);
    CHECK_EQ(narrow<Half>(4.9e-324), 0U);
    CHECK_EQ(narrow<Bfloat>(-0.0), 0x8000U);
}

#if defined(__FLT16_MAX__) && !defined(__clang__)
// Compares with the compiler's own fp16, if it has one, over floats of all magnitudes.
static void half_agrees_with_the_compiler() {
    for (uint64_t pattern = 0; pattern < 0x7F800000; pattern += 9973) {
        const float value = std::bit_cast<float>(static_cast<uint32_t>(pattern));
        CHECK_EQ(narrow<Half>(value), std::bit_cast<uint16_t>(static_cast<_Float16>(value)));
    }
}
#endif

template <class T> static void check_extremes() {
    const T nan = -std::numeric_limits<T>::quiet_NaN(),
            values[] = {T(-2), T(-0.0), T(0.0), T(1), std::numeric_limits<T>::infinity()};
    constexpr size_t count = std::size(values); // in increasing order, -0 before +0
    for (size_t i = 0; i < count; i++)
        for (size_t j = 0; j < count; j++) {
            const T least = minimum(values[i], values[j]), most = maximum(values[i], values[j]);
            CHECK(least == values[std::min(i, j)] &&
                  std::signbit(least) == std::signbit(values[std::min(i, j)]));
            CHECK(most == values[std::max(i, j)] &&
                  std::signbit(most) == std::signbit(values[std::max(i, j)]));
        }
    for (const T value : values)
        for (const T result :
             {minimum(nan, value), minimum(value, nan), maximum(nan, value), maximum(value, nan)})
            CHECK(std::isnan(result) && !std::signbit(result));
}

static void extremes_keep_nan_and_zeros() {
    check_extremes<float>();
    check_extremes<double>();
    CHECK_EQ(std::bit_cast<uint32_t>(minimum(-NAN, 1.0F)), float_nan);
    CHECK_EQ(std::bit_cast<uint64_t>(maximum(std::bit_cast<double>(~0ULL), 1.0)), double_nan);
    CHECK_EQ(std::bit_cast<uint32_t>(canonical(-NAN)), float_nan);
    CHECK_EQ(std::bit_cast<uint64_t>(canonical(std::bit_cast<double>(~0ULL))), double_nan);
    CHECK(!is_finite(NAN) && !is_finite(-INFINITY) && is_finite(std::numeric_limits<float>::max()));
}

int main() {
    const CMUnitTest tests[] = {
        QTEST(half_is_right),
        QTEST(bfloat_is_right),
        QTEST(e4m3_is_right),
        QTEST(e5m2_is_right),
        QTEST(pinned_values),
#if defined(__FLT16_MAX__) && !defined(__clang__)
        QTEST(half_agrees_with_the_compiler),
#endif
        QTEST(extremes_keep_nan_and_zeros),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
