// What a lane holds of a tensor, and how that gets into the lane and back to memory. A warp holds a
// row of values at a time. Each lane holds 16 values of the row, as runs of consecutive values; a
// layout says which.
//
// A lane accesses global memory 16 bytes at once, or fewer if the values have fewer. Addresses are
// multiples of the access size; addresses of single values are multiples of their alignment, which
// is their size unless they consist of several numbers.
//
// Codes lie in the planes of a payload (lib/codec/chunk.hpp). A lane has the codes of its values
// in the bytes of words, so that an operation on a word is one on four codes. Payloads start at
// multiples of 16 bytes.
#pragma once

#include "base/types.hpp"
#include "device/batch.hpp"
#include "kernels/codec/combine.hpp"
#include "kernels/codec/number.hpp"
#include "kernels/gpu/port.hpp"

#include <cmath>
#include <cstring>

namespace qccl::QCCL_GPU {

// ---- Accesses to memory

// What one access moves. It consists of the words of a register, because nvcc takes apart and puts
// together, byte by byte, what consists of bytes.
template <size_t bytes> struct __attribute__((may_alias)) Piece {
    using Word =
        std::conditional_t<bytes == 1, uint8_t, std::conditional_t<bytes == 2, uint16_t, uint32_t>>;
    alignas(bytes) Word word[bytes / sizeof(Word)];
};

template <class T, unsigned count>
inline constexpr size_t piece_bytes = count == 1               ? alignof(T)
                                      : count * sizeof(T) < 16 ? count * sizeof(T)
                                                               : 16;

template <class T, unsigned count> QCCL_DEVICE bool is_aligned(const std::byte *at) {
    return reinterpret_cast<uintptr_t>(at) % piece_bytes<T, count> == 0;
}

template <class T, unsigned count> QCCL_DEVICE void load(const std::byte *at, T (&values)[count]) {
    constexpr size_t bytes = piece_bytes<T, count>;
    Piece<bytes> pieces[sizeof values / bytes];
#pragma unroll
    for (size_t i = 0; i < std::size(pieces); i++)
        pieces[i] = reinterpret_cast<const Piece<bytes> *>(at)[i];
    std::memcpy(values, pieces, sizeof values);
}

template <class T, unsigned count> QCCL_DEVICE void store(std::byte *at, const T (&values)[count]) {
    constexpr size_t bytes = piece_bytes<T, count>;
    Piece<bytes> pieces[sizeof values / bytes];
    std::memcpy(pieces, values, sizeof values);
#pragma unroll
    for (size_t i = 0; i < std::size(pieces); i++)
        reinterpret_cast<Piece<bytes> *>(at)[i] = pieces[i];
}

template <class T> QCCL_DEVICE T load_one(const std::byte *at) {
    T value[1];
    load(at, value);
    return value[0];
}
template <class T> QCCL_DEVICE void store_one(std::byte *at, T value) {
    const T values[1] = {value};
    store(at, values);
}

// ---- Values of a lane

inline constexpr unsigned lane_values = 16, row_values = lane_values * lanes;

// Four runs of four values. Neighbouring lanes hold neighbouring runs, so that a warp reads and
// writes memory without gaps.
struct Striped {
    static constexpr unsigned runs = 4, length = 4;

    // Returns how far a run lies behind the lane's first run.
    static constexpr unsigned offset(unsigned run) { return run * length * lanes; }
    // Returns the lane's first value of a row.
    QCCL_DEVICE static unsigned first() { return length * lane(); }
};

// Half of a group of 32 values; a group lies in two neighbouring lanes. The lane in column c has
// values 8 c ... 8 c + 7 and those 16 behind them. A lane therefore makes whole bytes of the 4-bit
// plane without its neighbour, computes a block's scale once for 16 values, and draws the noise of
// eight values from one block of the generator.
inline constexpr unsigned columns = 2, row_groups = lanes / columns;
QCCL_DEVICE unsigned column() { return lane() % columns; }

struct Grouped {
    static constexpr unsigned runs = 2, length = 8;

    static constexpr unsigned offset(unsigned run) { return run * 16; }
    QCCL_DEVICE static unsigned first() { return lane() / columns * 32 + length * column(); }
};

// Values next to each other.
template <class T> using Octet = T[8];

// A lane's values of a row.
template <class Layout, class T> using Held = T[Layout::runs][Layout::length];

// Calls f(run, i) for each value of so many runs.
template <unsigned runs, unsigned length, class Call>
QCCL_DEVICE void for_each_of_runs(Call &&call) {
#pragma unroll
    for (unsigned run = 0; run < runs; run++)
#pragma unroll
        for (unsigned i = 0; i < length; i++) call(run, i);
}
// Calls f(run, i) for each value that a lane holds.
template <class Layout, class Call> QCCL_DEVICE void for_each_value(Call &&call) {
    for_each_of_runs<Layout::runs, Layout::length>(call);
}

// Returns how many of the `most` values from `place` on exist, if `end` values do.
QCCL_DEVICE unsigned remaining(uint64_t place, uint64_t end, unsigned most) {
    return place >= end ? 0 : end - place < most ? static_cast<unsigned>(end - place) : most;
}

// Where the lane's values of a row lie in a tensor of `count` values.
template <class Layout> struct Place {
    uint64_t first; // value of the tensor
    uint32_t left;  // values of the tensor from the first on, if they are fewer than a row's

    QCCL_DEVICE Place(uint64_t row, uint64_t count)
        : first(row * row_values + Layout::first()), left(remaining(first, count, row_values)) {}

    QCCL_DEVICE uint64_t start(unsigned run) const { return first + Layout::offset(run); }
    // Returns how many values of a run exist.
    QCCL_DEVICE unsigned present(unsigned run) const {
        const unsigned offset = Layout::offset(run);
        return left <= offset ? 0 : left - offset < Layout::length ? left - offset : Layout::length;
    }
    QCCL_DEVICE bool has(unsigned run) const { return left > Layout::offset(run); }
    // Returns true if all values of the lane exist.
    QCCL_DEVICE bool is_whole() const {
        return left >= Layout::offset(Layout::runs - 1) + Layout::length;
    }
    // Returns the group of 32 values that a run lies in, and its first value in the group.
    QCCL_DEVICE uint64_t group(unsigned run) const { return first / 32 + Layout::offset(run) / 32; }
    QCCL_DEVICE unsigned inner(unsigned run) const {
        return static_cast<unsigned>(first % 32) + Layout::offset(run) % 32;
    }
};

// Returns the value at an index that is not known at compile time. Registers have no addresses, so
// the value is selected among all. Use pick and set in rare code that need not be fast but must not
// take registers from fast code. They read all values first: clang would choose among addresses,
// and give the values addresses in memory.
template <class T, unsigned count> QCCL_DEVICE T pick(const T (&values)[count], unsigned i) {
    T picked = values[0];
#pragma unroll
    for (unsigned k = 1; k < count; k++) {
        const T other = values[k];
        picked = k == i ? other : picked;
    }
    return picked;
}
template <class T, unsigned runs, unsigned length>
QCCL_DEVICE T pick(const T (&values)[runs][length], unsigned run, unsigned i) {
    T picked = pick(values[0], i);
#pragma unroll
    for (unsigned r = 1; r < runs; r++) {
        const T other = pick(values[r], i);
        picked = r == run ? other : picked;
    }
    return picked;
}
template <class T, unsigned count> QCCL_DEVICE void set(T (&values)[count], unsigned i, T value) {
#pragma unroll
    for (unsigned k = 0; k < count; k++) values[k] = k == i ? value : values[k];
}
template <class T, unsigned runs, unsigned length>
QCCL_DEVICE void set(T (&values)[runs][length], unsigned run, unsigned i, T value) {
#pragma unroll
    for (unsigned r = 0; r < runs; r++) set(values[r], r == run ? i : length, value);
}

// ---- Bits: what memory holds

// Loads a lane's values. Values that the tensor does not have are zero.
template <class Layout, class Bits>
QCCL_DEVICE void load_runs(const std::byte *start, const Place<Layout> &place,
                           Held<Layout, Bits> &bits) {
    const std::byte *const at = start + place.first * sizeof(Bits);
    if (is_aligned<Bits, Layout::length>(at) && place.is_whole()) {
#pragma unroll
        for (unsigned run = 0; run < Layout::runs; run++)
            load(at + Layout::offset(run) * sizeof(Bits), bits[run]);
        return;
    }
    for_each_value<Layout>([&](unsigned run, unsigned i) {
        const unsigned value = Layout::offset(run) + i;
        bits[run][i] = value < place.left ? load_one<Bits>(at + value * sizeof(Bits)) : Bits{};
    });
}

template <class Layout, class Bits>
QCCL_DEVICE void store_runs(std::byte *start, const Place<Layout> &place,
                            const Held<Layout, Bits> &bits) {
    std::byte *const at = start + place.first * sizeof(Bits);
    if (is_aligned<Bits, Layout::length>(at) && place.is_whole()) {
#pragma unroll
        for (unsigned run = 0; run < Layout::runs; run++)
            store(at + Layout::offset(run) * sizeof(Bits), bits[run]);
        return;
    }
    for_each_value<Layout>([&](unsigned run, unsigned i) {
        const unsigned value = Layout::offset(run) + i;
        if (value < place.left) store_one(at + value * sizeof(Bits), bits[run][i]);
    });
}

// ---- Formats: what bits mean

// Calls f(Bits{}) with the type that holds a value of a plain type. T is the accumulator's type.
// Integers have that type; floats have that type or 8 or 16 bits.
template <class T, class Call> QCCL_DEVICE void with_bits(DataType type, Call &&call) {
    if constexpr (std::is_floating_point_v<T>) {
        if (type == DataType::float16 || type == DataType::bfloat16) return call(uint16_t{});
        if (type == DataType::float8e4m3 || type == DataType::float8e5m2) return call(uint8_t{});
    }
    call(T{});
}

// Calls f(F{}) with the format of a type of 8 or 16 bits.
template <class Bits, class Call> QCCL_DEVICE void with_format(DataType type, Call &&call) {
    if constexpr (std::is_same_v<Bits, uint16_t>)
        return type == DataType::float16 ? call(Half{}) : call(Bfloat{});
    else
        return type == DataType::float8e4m3 ? call(E4m3{}) : call(E5m2{});
}

// Widens bits to values. A NaN stays a NaN, but need not stay the same one.
template <class T, class Bits, unsigned runs, unsigned length>
QCCL_DEVICE void widen_values(DataType type, const Bits (&bits)[runs][length],
                              T (&values)[runs][length]) {
    const auto each = [&](auto &&widened) {
        for_each_of_runs<runs, length>(
            [&](unsigned run, unsigned i) { values[run][i] = widened(bits[run][i]); });
    };
    if constexpr (std::is_same_v<Bits, T>)
        each([](Bits x) { return x; });
    else
        with_format<Bits>(type, [&]<class F>(F) {
            each([](Bits x) { return static_cast<T>(widen_number<F>(x)); });
        });
}

// The same for one value.
template <class T, class Bits> QCCL_DEVICE T widened(DataType type, Bits bits) {
    const Bits one[1][1] = {{bits}};
    T value[1][1];
    widen_values(type, one, value);
    return value[0][0];
}

// Narrows values to bits. If values keep their type, NaN must be canonical already. Hardly ever is
// a value beyond the largest number, so that is tested for all values at once.
template <class T, class Bits, unsigned runs, unsigned length>
QCCL_DEVICE void narrow_values(DataType type, bool saturates, const T (&values)[runs][length],
                               Bits (&bits)[runs][length]) {
    const auto each = [&](auto &&narrowed) {
        for_each_of_runs<runs, length>([&](unsigned run, unsigned i) {
            bits[run][i] = static_cast<Bits>(narrowed(values[run][i]));
        });
    };
    if constexpr (std::is_same_v<Bits, T>)
        return each([](T x) { return x; });
    else
        with_format<Bits>(type, [&]<class F>(F) {
            if constexpr (std::is_same_v<T, float>) {
                bool are_inside = true;
                for_each_of_runs<runs, length>([&](unsigned run, unsigned i) {
                    are_inside &= std::fabs(values[run][i]) <= largest_number<F>;
                });
                if (are_inside) return each([](T x) { return narrow_inside<F>(x); });
            }
            if (saturates)
                each([](T x) { return narrow<F, Overflow::saturate>(x); });
            else
                each([](T x) { return narrow<F>(x); });
        });
}

// Makes every NaN the canonical one. There hardly ever is one, so the test looks at two values at a
// time.
template <class T, unsigned runs, unsigned length>
QCCL_DEVICE void make_canonical(T (&values)[runs][length]) {
    if constexpr (!std::is_arithmetic_v<T>) { // rare types
        for_each_of_runs<runs, length>(
            [&](unsigned run, unsigned i) { values[run][i] = canonical_element(values[run][i]); });
    } else if constexpr (std::is_floating_point_v<T>) {
        bool has_nan = false;
#pragma unroll
        for (unsigned run = 0; run < runs; run++)
#pragma unroll
            for (unsigned i = 0; i < length; i += 2)
                has_nan |= is_unordered(values[run][i], values[run][i + 1]);
        if (!has_nan) return;
        for_each_of_runs<runs, length>(
            [&](unsigned run, unsigned i) { values[run][i] = canonical(values[run][i]); });
    }
}

// ---- Codes of a lane

// The codes of the values that a lane holds: their low eight bits, and the bits above, which few
// codecs have.
template <class Layout> struct HeldCodes {
    static constexpr unsigned words = Layout::length / 4; // of a run
    uint32_t low[Layout::runs][words] = {}, high[Layout::runs][words] = {};
};

// Calls f(run, i) for each word of codes.
template <class Layout, class Call> QCCL_DEVICE void for_each_word(Call &&call) {
#pragma unroll
    for (unsigned run = 0; run < Layout::runs; run++)
#pragma unroll
        for (unsigned i = 0; i < HeldCodes<Layout>::words; i++) call(run, i);
}

// Returns a word with `bits` in each byte.
QCCL_DEVICE constexpr uint32_t in_each_byte(uint32_t bits) { return bits * 0x01010101U; }

// Returns the lowest bits of a word's bytes as four neighbouring bits, and the reverse. The factor
// has a bit for each place to which a bit moves, and no two of the moved bits meet.
QCCL_DEVICE uint32_t gathered(uint32_t bytes) {
    return (bytes & in_each_byte(1)) * 0x10204080U >> 28;
}
QCCL_DEVICE uint32_t scattered(uint32_t bits) { return bits * 0x00204081U & in_each_byte(1); }

// Returns the piece of a plane that belongs to one group.
QCCL_DEVICE std::byte *piece(const Operand &operand, ChunkPart plane, unsigned plane_bits,
                             uint64_t group) {
    return operand.at + operand.section[static_cast<size_t>(plane)] +
           (operand.begin / 32 + group) * (4 * plane_bits);
}

// Stores the codes of a row. All lanes of the warp must call; only groups that the tensor has are
// written. The two lanes of a group exchange codes so that each stores half of what a plane has of
// the group.
QCCL_DEVICE void store_codes(const Operand &operand, uint64_t group, bool is_inside,
                             const HeldCodes<Grouped> &codes) {
    const unsigned bits = operand.bits;
    const auto at = [&](ChunkPart plane, unsigned width) {
        return piece(operand, plane, width, group) + 2 * width * column();
    };
    if ((bits & 8) != 0) {
        uint32_t wanted[2], half[4];
#pragma unroll
        for (unsigned i = 0; i < 2; i++) {
            const uint32_t first = codes.low[0][i], second = codes.low[1][i];
            wanted[i] = shuffle_xor(column() == 0 ? second : first, 1);
            half[i] = column() == 0 ? first : wanted[i];
            half[i + 2] = column() == 0 ? wanted[i] : second;
        }
        if (is_inside) store(at(ChunkPart::plane8, 8), half);
    }
    unsigned low = 0; // first bit that the plane holds, of those that plane8 does not hold
    const auto part = [&](unsigned run, unsigned i, unsigned width) {
        const uint32_t high_part = codes.high[run][i], low_part = codes.low[run][i];
        const uint32_t rest = (bits & 8) != 0 ? high_part : low_part;
        return rest >> low & in_each_byte((1U << width) - 1);
    };
    if ((bits & 4) != 0) {
        uint32_t half[2];
#pragma unroll
        for (unsigned i = 0; i < 2; i++) half[i] = part(0, i, 4) | part(1, i, 4) << 4;
        if (is_inside) store(at(ChunkPart::plane4, 4), half);
        low += 4;
    }
    if ((bits & 2) != 0) {
        // The first and third value of a byte are those of column 0.
        uint32_t own[2];
#pragma unroll
        for (unsigned i = 0; i < 2; i++)
            own[i] = (part(0, i, 2) | part(1, i, 2) << 4) << (2 * column());
        const uint32_t wanted = shuffle_xor(column() == 0 ? own[1] : own[0], 1);
        if (is_inside)
            store_one(at(ChunkPart::plane2, 2), (column() == 0 ? own[0] : own[1]) | wanted);
        low += 2;
    }
    if ((bits & 1) != 0) {
        uint32_t own = 0;
#pragma unroll
        for (unsigned run = 0; run < 2; run++)
            own |= (gathered(part(run, 0, 1)) | gathered(part(run, 1, 1)) << 4) << (16 * run);
        own <<= 8 * column();
        const uint32_t word = own | shuffle_xor(own, 1);
        if (is_inside && column() == 0)
            store_one(piece(operand, ChunkPart::plane1, 1, group), word);
    }
}

// Calls take(run, words) with the words that the plane has of each run's codes, or 0 if the tensor
// does not have the run.
template <unsigned width, class Layout, class Take>
QCCL_DEVICE void load_plane(const Operand &operand, ChunkPart plane, const Place<Layout> &place,
                            Take &&take) {
    constexpr unsigned bytes = 4 * width; // of a group's piece
    const std::byte *const at =
        piece(operand, plane, width, place.group(0)) + place.inner(0) % bytes;
#pragma unroll
    for (unsigned run = 0; run < Layout::runs; run++) {
        const unsigned offset = Layout::offset(run);
        uint32_t words[(Layout::length < bytes ? Layout::length : bytes) / 4] = {};
        if (place.has(run)) load(at + offset / 32 * bytes + offset % 32 % bytes, words);
        take(run, words);
    }
}

template <class Layout>
QCCL_DEVICE void load_codes(const Operand &operand, const Place<Layout> &place,
                            HeldCodes<Layout> &codes) {
    constexpr unsigned words = HeldCodes<Layout>::words;
    const unsigned bits = operand.bits;
    if ((bits & 8) != 0) {
        load_plane<8>(operand, ChunkPart::plane8, place,
                      [&](unsigned run, const uint32_t(&loaded)[words]) {
#pragma unroll
                          for (unsigned i = 0; i < words; i++) codes.low[run][i] = loaded[i];
                      });
        if (bits == 8) return;
    }
    uint32_t rest[Layout::runs][words] = {}; // what plane8 does not hold
    if ((bits & 4) != 0)
        load_plane<4>(operand, ChunkPart::plane4, place,
                      [&](unsigned run, const uint32_t(&loaded)[words]) {
                          const unsigned shift = place.inner(run) / 16 * 4;
#pragma unroll
                          for (unsigned i = 0; i < words; i++)
                              rest[run][i] = loaded[i] >> shift & in_each_byte(15);
                      });
    unsigned low = bits & 4;
    if ((bits & 2) != 0) {
        load_plane<2>(operand, ChunkPart::plane2, place,
                      [&](unsigned run, const uint32_t(&loaded)[words]) {
                          const unsigned shift = place.inner(run) / 8 * 2;
#pragma unroll
                          for (unsigned i = 0; i < words; i++)
                              rest[run][i] |= (loaded[i] >> shift & in_each_byte(3)) << low;
                      });
        low += 2;
    }
    if ((bits & 1) != 0)
        load_plane<1>(operand, ChunkPart::plane1, place,
                      [&](unsigned run, const uint32_t(&loaded)[1]) {
                          const uint32_t own = loaded[0] >> place.inner(run);
#pragma unroll
                          for (unsigned i = 0; i < words; i++)
                              rest[run][i] |= scattered(own >> (4 * i) & 15) << low;
                      });
    for_each_word<Layout>([&](unsigned run, unsigned i) {
        const uint32_t own = rest[run][i], loaded = codes.low[run][i];
        codes.high[run][i] = (bits & 8) != 0 ? own : 0;
        codes.low[run][i] = (bits & 8) != 0 ? loaded : own;
    });
}

} // namespace qccl::QCCL_GPU
