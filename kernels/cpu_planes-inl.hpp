// Converts codes of fewer than 8 bits between one byte per value and the planes of WIRE.md, 32
// values (a group) at a time. Compiled once per target.
#if defined(QCCL_CPU_PLANES_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef QCCL_CPU_PLANES_INL
#undef QCCL_CPU_PLANES_INL
#else
#define QCCL_CPU_PLANES_INL
#endif

#include "codec/chunk.hpp"

#include <hwy/highway.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

HWY_BEFORE_NAMESPACE();
namespace qccl::HWY_NAMESPACE {

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

} // namespace qccl::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
