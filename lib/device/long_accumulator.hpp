// A LongAccumulator holds the sum of any doubles without an error: a fixed-point number that
// reaches from the smallest subnormal to beyond the largest double (Kulisch and Miranker, "Computer
// Arithmetic in Theory and Practice", 1981). Exact sums use it where a few doubles do not hold a
// sum: the kernels of processors and GPUs, and qcclSumExact, whose ranks exchange it. Plain data
// without locks; any thread; nothing blocks.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>

namespace qccl {

// A sum in two's complement, in units of the smallest subnormal, low word first. The words of ranks
// travel as they are, so they have no padding.
struct LongAccumulator {
    // 2098 bits from the smallest subnormal to the largest double, a sign, and carries of 2^64
    // values.
    static constexpr size_t number_words = 34;
    using Words = std::array<uint64_t, number_words>;
    // Bits of `kinds`.
    static constexpr uint64_t negative_zeros = 1, others = 2;

    Words words;
    double special; // the sum of the values that are not finite: zero if there were none
    uint64_t kinds; // of values; a sum of nothing but -0 is -0, as IEEE 754 has it

    constexpr void add(double value) {
        const auto pattern = std::bit_cast<uint64_t>(value);
        kinds |= pattern == sign_bit ? negative_zeros : others;
        const uint64_t exponent = pattern >> fraction_bits & exponent_mask;
        if (exponent == exponent_mask) {
            special += value;
            return;
        }
        uint64_t significand = pattern & (hidden_bit - 1);
        if (exponent != 0) significand |= hidden_bit;
        const uint64_t lowest = exponent == 0 ? 0 : exponent - 1;
        const size_t word = lowest / word_bits;
        const unsigned offset = lowest % word_bits;
        const uint64_t low = significand << offset;
        const uint64_t high = offset == 0 ? 0 : significand >> (word_bits - offset);
        if ((pattern & sign_bit) == 0) {
            carry_up(words, word, low);
            carry_up(words, word + 1, high);
        } else {
            borrow_up(word, low);
            borrow_up(word + 1, high);
        }
    }

    constexpr void add(const LongAccumulator &other) {
        uint64_t carry = 0;
        for (size_t i = 0; i < number_words; i++) {
            const uint64_t partial = words[i] + carry;
            carry = partial < carry ? 1 : 0;
            words[i] = partial + other.words[i];
            carry += words[i] < partial ? 1 : 0;
        }
        special += other.special;
        kinds |= other.kinds;
    }

    // Returns the sum rounded once, to the nearest double with ties to even. NaN is canonical.
    constexpr double rounded() const {
        if (special != 0) return special_result(); // NaN, too, is other than zero
        const Truncated sum = truncated();
        const bool is_odd = (sum.pattern & 1) != 0;
        return with_sign(sum.pattern + (sum.is_half && (sum.has_more || is_odd) ? 1 : 0));
    }

    // Returns the sum rounded to odd: towards zero, but to the neighbour with an odd last place if
    // the sum is no double. Rounding the result to a format with at least two bits less rounds the
    // sum itself (Boldo and Melquiond, "Emulation of FMA and correctly rounded sums", 2008).
    constexpr double rounded_to_odd() const {
        if (special != 0) return special_result();
        const Truncated sum = truncated();
        return with_sign(sum.pattern | (sum.is_half || sum.has_more ? 1 : 0));
    }

private:
    static constexpr unsigned word_bits = 64, fraction_bits = 52;
    static constexpr uint64_t hidden_bit = uint64_t{1} << fraction_bits;
    static constexpr uint64_t exponent_mask = 0x7FF;
    static constexpr uint64_t infinity = exponent_mask << fraction_bits;
    static constexpr uint64_t sign_bit = uint64_t{1} << 63;

    // A magnitude as a double's pattern, rounded towards zero, and what is left of it.
    struct Truncated {
        uint64_t pattern = 0;
        bool is_half = false;  // the first bit that was dropped
        bool has_more = false; // some bit behind that one
    };

    static constexpr void carry_up(Words &to, size_t at, uint64_t amount) {
        for (; amount != 0 && at < number_words; at++) {
            to[at] += amount;
            amount = to[at] < amount ? 1 : 0;
        }
    }
    constexpr void borrow_up(size_t at, uint64_t amount) {
        for (; amount != 0 && at < number_words; at++) {
            const bool borrows = words[at] < amount;
            words[at] -= amount;
            amount = borrows ? 1 : 0;
        }
    }

    constexpr bool is_negative() const { return (words[number_words - 1] & sign_bit) != 0; }

    constexpr Words magnitude() const {
        Words result = words;
        if (!is_negative()) return result;
        for (size_t i = 0; i < number_words; i++) result[i] = ~result[i];
        carry_up(result, 0, 1);
        return result;
    }

    // The number of the highest bit that is set. GPUs have no bit counts of the standard library.
    static constexpr unsigned highest_bit(uint64_t word) {
        unsigned bit = 0;
        for (unsigned step = word_bits / 2; step != 0; step /= 2)
            if (word >> (bit + step) != 0) bit += step;
        return bit;
    }

    constexpr Truncated truncated() const {
        const Words sum = magnitude();
        unsigned top = number_words;
        while (top > 0 && sum[top - 1] == 0) top--;
        if (top == 0) return {};
        const unsigned highest = (top - 1) * word_bits + highest_bit(sum[top - 1]);
        if (highest <= fraction_bits) return {.pattern = sum[0]}; // such a number is its pattern
        const unsigned dropped = highest - fraction_bits, half = dropped - 1;
        const unsigned word = dropped / word_bits, offset = dropped % word_bits;
        uint64_t significand = sum[word] >> offset;
        if (offset != 0 && word + 1 < number_words)
            significand |= sum[word + 1] << (word_bits - offset);
        const unsigned half_word = half / word_bits;
        const uint64_t half_bit = uint64_t{1} << half % word_bits;
        Truncated result{.pattern = (uint64_t{dropped} << fraction_bits) +
                                    (significand & (2 * hidden_bit - 1)),
                         .is_half = (sum[half_word] & half_bit) != 0,
                         .has_more = (sum[half_word] & (half_bit - 1)) != 0};
        for (unsigned i = 0; i < half_word; i++) result.has_more |= sum[i] != 0;
        return result;
    }

    constexpr double with_sign(uint64_t pattern) const {
        const uint64_t sign = is_negative() || kinds == negative_zeros ? sign_bit : 0;
        return std::bit_cast<double>(sign | (pattern < infinity ? pattern : infinity));
    }
    constexpr double special_result() const {
        return special == special ? special : std::numeric_limits<double>::quiet_NaN();
    }
};
static_assert(sizeof(LongAccumulator) == (LongAccumulator::number_words + 2) * sizeof(uint64_t));

} // namespace qccl
