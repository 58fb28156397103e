// A group is 32 values that share a piece of every plane. This file reads groups for the encoders,
// draws their noise and stores their codes. The noise of stochastic rounding comes from many blocks
// of the generator in code_rounding.hpp at a time. Codes of fewer than 8 bits are converted between
// one byte per value and the planes of WIRE.md, a group at a time. Compiled once per target.

#if defined(QCCL_CPU_GROUP_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef QCCL_CPU_GROUP_INL
#undef QCCL_CPU_GROUP_INL
#else
#define QCCL_CPU_GROUP_INL
#endif

#include "codec/chunk.hpp"
#include "device/kernels.hpp"
#include "kernels/codec/code_rounding.hpp"
#include "kernels/cpu/cpu_values-inl.hpp"

#include <hwy/highway.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

HWY_BEFORE_NAMESPACE();

namespace qccl::HWY_NAMESPACE {

// ---- Noise

namespace hn = hwy::HWY_NAMESPACE;

// Each 64-bit lane computes one block of the generator. Each word of its state is in the low half
// of a lane. Products leave garbage in the high half, which the next product does not read.
using Blocks = hn::CappedTag<uint64_t, 8>;
using BlockVector = hn::Vec<Blocks>;

HWY_INLINE BlockVector product(BlockVector word, BlockVector multiplier) {
    const hn::Repartition<uint32_t, Blocks> halves;
    return hn::MulEven(hn::BitCast(halves, word), hn::BitCast(halves, multiplier));
}

HWY_INLINE void philox_round(BlockVector &c0, BlockVector &c1, BlockVector &c2, BlockVector &c3,
                             BlockVector key_0, BlockVector key_1) {
    const Blocks d;
    const BlockVector p0 = product(c0, hn::Set(d, philox_multiplier_0)),
                      p1 = product(c2, hn::Set(d, philox_multiplier_1));
    c0 = hn::Xor(hn::ShiftRight<32>(p1), hn::Xor(c1, key_0));
    c2 = hn::Xor(hn::ShiftRight<32>(p0), hn::Xor(c3, key_1));
    c1 = p1;
    c3 = p0;
}

HWY_INLINE void store_draws(BlockVector c0, BlockVector c1, BlockVector c2, BlockVector c3,
                            uint16_t *draws) {
    const Blocks d;
    const BlockVector low_half = hn::Set(d, 0xFFFFFFFFU);
    const BlockVector low = hn::Or(hn::And(c0, low_half), hn::ShiftLeft<32>(c1));
    const BlockVector high = hn::Or(hn::And(c2, low_half), hn::ShiftLeft<32>(c3));
    HWY_ALIGN uint64_t words[2 * 8];
    hn::StoreInterleaved2(low, high, d, words);
    std::memcpy(draws, words, 2 * hn::Lanes(d) * sizeof(uint64_t));
}

// Writes the draws of `count` generator blocks from `block` on, eight draws per block. Two vectors
// of blocks share the keys of a round, and neither waits for the other. The function writes whole
// pairs of vectors, also behind the last block.
HWY_INLINE void fill_draws(const Noise &noise, uint64_t block, size_t count, uint16_t *draws) {
    const Blocks d;
    const size_t step = hn::Lanes(d);
    const BlockVector call_0 = hn::Set(d, noise.call), call_1 = hn::Set(d, noise.call >> 32);
    for (size_t i = 0; i < count; i += 2 * step) {
        BlockVector a0 = hn::Add(hn::Iota(d, 0), hn::Set(d, block + i)),
                    b0 = hn::Add(hn::Iota(d, 0), hn::Set(d, block + i + step));
        BlockVector a1 = hn::ShiftRight<32>(a0), b1 = hn::ShiftRight<32>(b0);
        BlockVector a2 = call_0, b2 = call_0, a3 = call_1, b3 = call_1;
        uint32_t k0 = static_cast<uint32_t>(noise.key), k1 = static_cast<uint32_t>(noise.key >> 32);
        for (int round = 0; round < philox_rounds; round++) {
            const BlockVector key_0 = hn::Set(d, uint64_t{k0}), key_1 = hn::Set(d, uint64_t{k1});
            philox_round(a0, a1, a2, a3, key_0, key_1);
            philox_round(b0, b1, b2, b3, key_0, key_1);
            k0 += philox_weyl_0;
            k1 += philox_weyl_1;
        }
        store_draws(a0, a1, a2, a3, draws + i * philox_draws);
        store_draws(b0, b1, b2, b3, draws + (i + step) * philox_draws);
    }
}

// Returns lanes() draws as fp32 in [0, 1).
HWY_INLINE FloatVector unit_noise(const uint16_t *draws) {
    const hn::Rebind<uint16_t, Floats> narrow;
    const IntVector k = hn::PromoteTo(Ints(), hn::LoadU(narrow, draws));
    return hn::Mul(hn::ConvertTo(Floats(), k), hn::Set(Floats(), 0x1p-16F));
}

// Returns lanes() draws as fp32, less 1/2 (dither_shift() of code_rounding.hpp).
HWY_INLINE FloatVector dither_noise(const uint16_t *draws) {
    return hn::Sub(unit_noise(draws), hn::Set(Floats(), 0.5F));
}

// ---- Planes

namespace hn = hwy::HWY_NAMESPACE;

// A 128-bit vector is half a group of bytes on every target.
using HalfGroup = hn::CappedTag<uint8_t, group_values / 2>;
using Quarter = hn::CappedTag<uint8_t, group_values / 4>;

// A code is split over the planes from its low bits up. These functions return the first bit of the
// code that the planes of 2 and 1 bits hold.
constexpr int plane2_shift(int bits) { return bits & 4; }
constexpr int plane1_shift(int bits) { return bits & 6; }

template <int shift> HWY_INLINE hn::Vec<HalfGroup> field(hn::Vec<HalfGroup> codes, uint8_t mask) {
    const HalfGroup d;
    if constexpr (shift == 0)
        return hn::And(codes, hn::Set(d, mask));
    else
        return hn::And(hn::ShiftRight<shift>(codes), hn::Set(d, mask));
}

// Packs a group into its planes. `codes` has one code in the low bits of each byte; bits above the
// code are dropped.
template <int bits>
HWY_INLINE void pack_group(const uint8_t *codes, uint8_t *plane4, uint8_t *plane2,
                           uint8_t *plane1) {
    const HalfGroup d;
    const auto low = hn::LoadU(d, codes), high = hn::LoadU(d, codes + group_values / 2);
    if constexpr ((bits & 4) != 0)
        hn::StoreU(hn::Or(field<0>(low, 15), hn::ShiftLeft<4>(high)), d, plane4);
    if constexpr ((bits & 2) != 0) {
        constexpr int shift = plane2_shift(bits);
        const auto pairs = hn::Or(field<shift>(low, 3), hn::ShiftLeft<4>(field<shift>(high, 3)));
        const Quarter quarter;
        const auto even = hn::LowerHalf(quarter, pairs), odd = hn::UpperHalf(quarter, pairs);
        hn::StoreU(hn::Or(even, hn::ShiftLeft<2>(odd)), quarter, plane2);
    }
    if constexpr ((bits & 1) != 0) {
        const auto bit = hn::Set(d, static_cast<uint8_t>(1 << plane1_shift(bits)));
        // StoreMaskBits may write up to 8 bytes.
        uint8_t mask[2 * sizeof(uint64_t)];
        hn::StoreMaskBits(d, hn::TestBit(low, bit), mask);
        hn::StoreMaskBits(d, hn::TestBit(high, bit), mask + 2);
        std::memcpy(plane1, mask, group_values / 8);
    }
}

// The inverse of pack_group. `sign` is the sign bit that a signed code extends, or 0.
template <int bits>
HWY_INLINE void unpack_group(uint8_t sign, const uint8_t *plane4, const uint8_t *plane2,
                             const uint8_t *plane1, uint8_t *codes) {
    const HalfGroup d;
    auto low = hn::Zero(d), high = hn::Zero(d);
    if constexpr ((bits & 4) != 0) {
        const auto pairs = hn::LoadU(d, plane4);
        low = field<0>(pairs, 15);
        high = hn::ShiftRight<4>(pairs);
    }
    if constexpr ((bits & 2) != 0) {
        const Quarter quarter;
        const auto even = hn::LoadU(quarter, plane2);
        const auto pairs = hn::Combine(d, hn::ShiftRight<2>(even), even);
        low = hn::Or(low, hn::ShiftLeft<plane2_shift(bits)>(field<0>(pairs, 3)));
        high = hn::Or(high, hn::ShiftLeft<plane2_shift(bits)>(field<4>(pairs, 3)));
    }
    if constexpr ((bits & 1) != 0) {
        HWY_ALIGN static constexpr uint8_t byte_of[16] = {0, 0, 0, 0, 0, 0, 0, 0,
                                                          1, 1, 1, 1, 1, 1, 1, 1};
        HWY_ALIGN static constexpr uint8_t bit_of[16] = {1, 2, 4, 8, 16, 32, 64, 128,
                                                         1, 2, 4, 8, 16, 32, 64, 128};
        uint32_t word;
        std::memcpy(&word, plane1, sizeof word);
        const auto bytes = hn::BitCast(d, hn::Set(hn::Repartition<uint32_t, HalfGroup>(), word));
        const auto at = hn::Load(d, byte_of), bit = hn::Load(d, bit_of);
        const auto one = hn::Set(d, static_cast<uint8_t>(1 << plane1_shift(bits)));
        const auto low_bytes = hn::TableLookupBytes(bytes, at);
        const auto high_bytes = hn::TableLookupBytes(bytes, hn::Add(at, hn::Set(d, uint8_t{2})));
        low = hn::Or(low, hn::IfThenElseZero(hn::TestBit(low_bytes, bit), one));
        high = hn::Or(high, hn::IfThenElseZero(hn::TestBit(high_bytes, bit), one));
    }
    const auto flip = hn::Set(d, sign);
    hn::StoreU(hn::Sub(hn::Xor(low, flip), flip), d, codes);
    hn::StoreU(hn::Sub(hn::Xor(high, flip), flip), d, codes + group_values / 2);
}

// Calls f(std::integral_constant<int, bits>()), so that `bits`, 1 to 7, becomes a constant.
template <class Function> HWY_INLINE void with_constant(int bits, const Function &f) {
    switch (bits) {
    case 1: return f(std::integral_constant<int, 1>());
    case 2: return f(std::integral_constant<int, 2>());
    case 3: return f(std::integral_constant<int, 3>());
    case 4: return f(std::integral_constant<int, 4>());
    case 5: return f(std::integral_constant<int, 5>());
    case 6: return f(std::integral_constant<int, 6>());
    case 7: return f(std::integral_constant<int, 7>());
    default: return;
    }
}

inline void pack_groups(const uint8_t *codes, size_t groups, int bits, const PayloadLayout &layout,
                        uint64_t first_group, std::byte *payload) {
    auto *bytes = reinterpret_cast<uint8_t *>(payload);
    uint8_t *const plane4 = bytes + layout.plane4 + first_group * 16;
    uint8_t *const plane2 = bytes + layout.plane2 + first_group * 8;
    uint8_t *const plane1 = bytes + layout.plane1 + first_group * 4;
    with_constant(bits, [&](auto constant) HWY_ATTR {
        for (size_t g = 0; g < groups; g++)
            pack_group<constant()>(codes + g * group_values, plane4 + g * 16, plane2 + g * 8,
                                   plane1 + g * 4);
    });
}

inline void unpack_groups(uint8_t *codes, size_t groups, int bits, uint8_t sign,
                          const PayloadLayout &layout, uint64_t first_group,
                          const std::byte *payload) {
    const auto *bytes = reinterpret_cast<const uint8_t *>(payload);
    const uint8_t *const plane4 = bytes + layout.plane4 + first_group * 16;
    const uint8_t *const plane2 = bytes + layout.plane2 + first_group * 8;
    const uint8_t *const plane1 = bytes + layout.plane1 + first_group * 4;
    with_constant(bits, [&](auto constant) HWY_ATTR {
        for (size_t g = 0; g < groups; g++)
            unpack_group<constant()>(sign, plane4 + g * 16, plane2 + g * 8, plane1 + g * 4,
                                     codes + g * group_values);
    });
}

// ---- Groups

// Groups that are processed at a time; their codes or values stay in the first-level cache.
inline constexpr size_t tile_groups = 16;
inline constexpr size_t tile_values = tile_groups * group_values;

// The part of a range that has codes, cut into groups. Every block is a whole number of groups
// here, except the last one.
struct Groups {
    uint64_t first = 0; // index of the range's first group in the chunk
    size_t count = 0;   // groups
    size_t per_block = 1;
    size_t values = 0; // elements of the range that have codes

    size_t blocks() const { return (count + per_block - 1) / per_block; }
    uint64_t first_block() const { return first / per_block; }
    // Returns the number of values in the last group; the other groups are full.
    size_t last_values() const { return values - (count - 1) * group_values; }
};

HWY_INLINE Groups groups_of(const ChunkRange &range) {
    const uint64_t bucket =
        range.codec->bucket == Codec::whole_chunk ? range.whole : range.codec->bucket;
    const uint64_t end = std::clamp(range.layout->coded, range.begin, range.begin + range.count);
    Groups groups;
    groups.first = range.begin / group_values;
    groups.values = end - range.begin;
    groups.count = (groups.values + group_values - 1) / group_values;
    groups.per_block = std::max<uint64_t>((bucket + group_values - 1) / group_values, 1);
    return groups;
}

// Whether decoded values are stored at the destination or added to the values there.
enum class Put : uint8_t { store, add };

// Provides the groups of a range as fp32, one tile at a time. Other formats, and a tile that the
// range does not fill, are converted into a buffer. The rest of that buffer repeats the first value
// of the last group, which changes no extreme.
class GroupSource {
public:
    GroupSource(DataType in, const void *src, const Groups &groups)
        : src_(static_cast<const std::byte *>(src)), in_(in), values_(groups.values) {}

    // Returns the groups from g on. The caller may read a whole tile.
    HWY_INLINE const float *tile(size_t g) {
        if (in_ == DataType::float32 && g * group_values + tile_values <= values_)
            return reinterpret_cast<const float *>(src_) + g * group_values;
        return converted(g);
    }

private:
    HWY_NOINLINE const float *converted(size_t g) {
        const size_t count = std::min(tile_values, values_ - g * group_values);
        copy(DataType::float32, buffer_, in_, src_ + g * group_values * type_bytes(in_), count,
             false);
        const size_t last = (count - 1) / group_values * group_values;
        std::fill(buffer_ + count, buffer_ + tile_values, buffer_[last]);
        return buffer_;
    }

    const std::byte *src_;
    DataType in_;
    size_t values_;
    HWY_ALIGN float buffer_[tile_values];
};

// Provides the noise draws of a range, one tile at a time.
class Draws {
public:
    Draws(const ChunkRange &range, const Noise &noise)
        : noise_(noise), index_(noise.first_index + range.begin) {}

    HWY_INLINE const uint16_t *tile(size_t g, size_t count) {
        return draws(g * group_values, count * group_values);
    }
    // Returns the draws of `count` values from value `from` on. `count` is at most a tile, and a
    // multiple of the draws of a generator block.
    HWY_INLINE const uint16_t *draws(uint64_t from, size_t count) {
        const uint64_t first = index_ + from;
        const size_t blocks = (first % philox_draws + count + philox_draws - 1) / philox_draws;
        fill_draws(noise_, first / philox_draws, blocks, buffer_);
        return buffer_ + first % philox_draws;
    }

private:
    Noise noise_;
    uint64_t index_; // index of the range's first element in the caller's tensor
    // A tile needs one generator block more if it starts within a block. Rounded up to full pairs
    // of vectors.
    HWY_ALIGN uint16_t buffer_[tile_values + 2 * 8 * philox_draws];
};

// Stores codes, one tile at a time. 8-bit codes are stored in place, narrower codes go through
// bytes into the planes. The low bytes of wider codes are stored in place and the bits above go
// through bytes.
class Codes {
public:
    Codes(const ChunkRange &range, const Groups &groups, std::byte *payload)
        : range_(range), groups_(groups), payload_(payload) {}

    HWY_INLINE uint8_t *tile(size_t g) { return range_.codec->bits >= 8 ? in_place(g) : buffer_; }
    // Codes of more than 8 bits: bytes for the bits above the low bytes that tile() returns.
    HWY_INLINE uint8_t *high_bytes() { return buffer_; }
    // Packs the `count` groups that the caller has written to tile(g). Codes behind the last value
    // of the range's last group become 0.
    HWY_INLINE void take(size_t g, size_t count) {
        if (g + count == groups_.count) {
            clear_rest(tile(g), count);
            if (range_.codec->bits > 8) clear_rest(buffer_, count);
        }
        const int packed_bits = range_.codec->bits & 7; // bits that are not in the 8-bit plane
        if (packed_bits != 0)
            pack_groups(buffer_, count, packed_bits, *range_.layout, groups_.first + g, payload_);
    }

private:
    HWY_INLINE void clear_rest(uint8_t *codes, size_t count) {
        uint8_t *const last = codes + (count - 1) * group_values;
        std::fill(last + groups_.last_values(), last + group_values, uint8_t{0});
    }

    uint8_t *in_place(size_t g) {
        return reinterpret_cast<uint8_t *>(payload_) + range_.layout->plane8 +
               (groups_.first + g) * group_values;
    }

    const ChunkRange &range_;
    const Groups &groups_;
    std::byte *payload_;
    HWY_ALIGN uint8_t buffer_[tile_values];
};

// Writes each of `count` numbers `block` times.
template <size_t block> HWY_INLINE void spread(const float *numbers, size_t count, float *to) {
    const hn::CappedTag<float, block> d;
    for (size_t i = 0; i < count; i++)
        for (size_t j = 0; j < block; j += hn::Lanes(d))
            hn::StoreU(hn::Set(d, numbers[i]), d, to + i * block + j);
}

} // namespace qccl::HWY_NAMESPACE

HWY_AFTER_NAMESPACE();
#endif
