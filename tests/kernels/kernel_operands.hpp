// Operands for the tests of kernels: memory between guards, and values that aim at the paths of the
// codecs.
#pragma once

#include "kernels/codec/combine.hpp"
#include "kernels/codec/number.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <span>
#include <vector>

namespace operands {

using namespace qccl;

// Memory between guards, `shift` bytes after the start of a cache line, filled with the same noise
// every time.
class Buffer {
public:
    explicit Buffer(size_t bytes, size_t shift = 0)
        : bytes_(bytes), shift_(shift), lines_((bytes + shift) / 64 + 3) {
        for (size_t i = 0; i < lines_.size(); i++)
            std::memcpy(lines_[i].bytes, noise_lines()[i % 4].bytes, sizeof(Line));
    }
    std::byte *data() { return lines_[1].bytes + shift_; }
    size_t bytes() const { return bytes_; }
    // Returns the bytes with 64 bytes of guard on both sides.
    std::span<const std::byte> all() { return {data() - 64, bytes_ + 128}; }

private:
    struct alignas(64) Line {
        std::byte bytes[64];
    };
    // The noise, which repeats itself after 256 bytes.
    static const std::array<Line, 4> &noise_lines() {
        static const std::array<Line, 4> lines = [] {
            std::array<Line, 4> made;
            uint8_t x = 1;
            for (Line &line : made)
                for (std::byte &b : line.bytes)
                    b = static_cast<std::byte>(x = static_cast<uint8_t>(x * 5 + 3));
            return made;
        }();
        return lines;
    }
    size_t bytes_, shift_;
    std::vector<Line> lines_;
};

inline bool same(Buffer &a, Buffer &b) {
    return a.bytes() == b.bytes() &&
           std::memcmp(a.all().data(), b.all().data(), a.all().size()) == 0;
}

// Kinds of input values; each aims at a path of the codecs.
enum class Pattern { gauss, whole, ties, zeros, tiny, huge, opposite, special, bits };
inline constexpr Pattern patterns[] = {Pattern::gauss,    Pattern::whole,   Pattern::ties,
                                       Pattern::zeros,    Pattern::tiny,    Pattern::huge,
                                       Pattern::opposite, Pattern::special, Pattern::bits};

class Values {
public:
    explicit Values(uint32_t seed) : random_(seed) {}

    double next(Pattern pattern, size_t i) {
        const double x = gauss_(random_);
        const uint32_t r = word();
        switch (pattern) {
        case Pattern::gauss: return x;
        case Pattern::whole: return static_cast<double>(static_cast<int32_t>(r % 17) - 8);
        case Pattern::ties: return static_cast<double>(static_cast<int32_t>(r % 1024) - 512) / 8;
        case Pattern::zeros:
            return i / 96 % 3 == 0 ? (r % 2 != 0 ? 0.0 : -0.0) : r % 50 == 0 ? x : 0.0;
        case Pattern::tiny: return x * std::ldexp(1.0, -100 - static_cast<int>(i / 64 % 60));
        case Pattern::huge: return x * std::ldexp(1.0, 120 + static_cast<int>(i / 64 % 8));
        case Pattern::opposite: return (r % 2 != 0 ? 1 : -1) * 1.7;
        case Pattern::special: return special(r, x);
        case Pattern::bits: return std::bit_cast<float>(r);
        }
        return x;
    }
    uint32_t word() { return static_cast<uint32_t>(random_()); }
    size_t pick(size_t bound) { return random_() % bound; }

private:
    static double special(uint32_t r, double x) {
        constexpr double infinity = std::numeric_limits<double>::infinity();
        switch (r % 400) {
        case 0: return std::numeric_limits<double>::quiet_NaN();
        case 1: return -std::numeric_limits<double>::quiet_NaN();
        case 2: return infinity;
        case 3: return -infinity;
        case 4: return std::numeric_limits<float>::max();
        case 5: return -std::numeric_limits<float>::max();
        case 6: return 1e300;
        case 7: return std::numeric_limits<float>::denorm_min();
        default: return x;
        }
    }

    std::mt19937 random_;
    std::normal_distribution<double> gauss_;
};

// Fills pairs with few values and few indices, so that equal ones meet, and padding with anything.
template <class V> void fill_pairs(Values &values, std::byte *dst, size_t count) {
    for (size_t i = 0; i < count; i++) {
        for (size_t b = 0; b < sizeof(IndexedValue<V>); b++)
            dst[i * sizeof(IndexedValue<V>) + b] = static_cast<std::byte>(values.word());
        auto pair = load_bits<IndexedValue<V>>(dst, i);
        pair.index = static_cast<int32_t>(values.word() % 5) - 2;
        pair.value = static_cast<V>(static_cast<int>(values.word() % 3) - 1);
        if constexpr (std::is_floating_point_v<V>) {
            const V nan = std::numeric_limits<V>::quiet_NaN();
            const V specials[] = {V(-0.0), nan, -nan, std::numeric_limits<V>::infinity()};
            if (values.pick(3) == 0) pair.value = specials[values.pick(4)];
        } else if (values.pick(4) == 0) {
            pair.value = std::numeric_limits<V>::min();
        }
        store_bits(dst, i, pair);
    }
}

inline void fill(Values &values, Pattern pattern, DataType type, std::byte *dst, size_t count) {
    switch (type) {
    case DataType::complex64: return fill(values, pattern, DataType::float32, dst, 2 * count);
    case DataType::complex128: return fill(values, pattern, DataType::float64, dst, 2 * count);
    case DataType::float_int: return fill_pairs<float>(values, dst, count);
    case DataType::double_int: return fill_pairs<double>(values, dst, count);
    case DataType::long_int: return fill_pairs<int64_t>(values, dst, count);
    case DataType::int_int: return fill_pairs<int32_t>(values, dst, count);
    case DataType::short_int: return fill_pairs<int16_t>(values, dst, count);
    default: break;
    }
    for (size_t i = 0; i < count; i++) {
        if (!info(type).is_float || (pattern == Pattern::bits && type_bytes(type) < 4))
            for (size_t b = 0; b < type_bytes(type); b++)
                dst[i * type_bytes(type) + b] = pattern == Pattern::zeros
                                                    ? static_cast<std::byte>(values.word() % 2)
                                                    : static_cast<std::byte>(values.word());
        else
            store_float(type, dst, i, values.next(pattern, i));
    }
}

} // namespace operands
