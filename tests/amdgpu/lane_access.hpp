// How translated instruction steps read and write their operands: one lane of a vector register,
// scalar registers, constants, masks, other lanes. The code that translate.py generates uses these
// functions.
#pragma once

#include "lane_numbers.hpp"
#include "wave.hpp"

#include <bit>

namespace amdgpu {

// Calls f(lane) for each lane whose bit in `live` is set.
template <unsigned lanes, class F> void each_lane(u64 live, F &&f) {
    constexpr u64 all = ~u64{0} >> (64 - lanes);
    if (live == all) {
        for (unsigned lane = 0; lane < lanes; ++lane) f(lane);
        return;
    }
    for (u64 left = live; left != 0; left &= left - 1)
        f(static_cast<unsigned>(std::countr_zero(left)));
}

template <class T> auto vector(const Wave &w, u64 r, unsigned lane) {
    if constexpr (sizeof(Bits<T>) == 8)
        return from_bits<T>(w.v[r][lane] | u64{w.v[r + 1][lane]} << 32);
    else
        return from_bits<T>(static_cast<Bits<T>>(w.v[r][lane]));
}
template <class T, class V> void put_vector(Wave &w, u64 r, unsigned lane, V value) {
    const Bits<T> bits = to_bits<T>(value);
    w.v[r][lane] = static_cast<u32>(bits);
    if constexpr (sizeof bits == 8) w.v[r + 1][lane] = static_cast<u32>(bits >> 32);
}

// Reads or writes the 8 or 16 bits of a register that start at bit `shift`.
template <class T> auto part(const Wave &w, u64 r, unsigned lane, unsigned shift) {
    return from_bits<T>(static_cast<Bits<T>>(w.v[r][lane] >> shift));
}
template <class T, class V> void put_part(Wave &w, u64 r, unsigned lane, unsigned shift, V value) {
    const u32 bits = to_bits<T>(value), mask = ~u32{0} >> (32 - 8 * sizeof(Bits<T>));
    w.v[r][lane] = (w.v[r][lane] & ~(mask << shift)) | bits << shift;
}

template <class T> auto scalar(const Wave &w, u64 r) {
    if constexpr (sizeof(Bits<T>) == 8)
        return from_bits<T>(w.s[r] | u64{w.s[r + 1]} << 32);
    else
        return from_bits<T>(static_cast<Bits<T>>(w.s[r]));
}
template <class T, class V> void put_scalar(Wave &w, u64 r, V value) {
    const Bits<T> bits = to_bits<T>(value);
    w.s[r] = static_cast<u32>(bits);
    if constexpr (sizeof bits == 8) w.s[r + 1] = static_cast<u32>(bits >> 32);
}

template <class T> auto scalar_part(const Wave &w, u64 r, unsigned shift) {
    return from_bits<T>(static_cast<Bits<T>>(w.s[r] >> shift));
}
template <class T> auto constant(u64 bits) { return from_bits<T>(static_cast<Bits<T>>(bits)); }

// Masks hold one bit per lane, in one scalar register or in two.
inline bool lane_bit(const Wave &w, u64 r, unsigned lane) {
    return (w.s[r + lane / 32] >> lane % 32 & 1) != 0;
}
template <unsigned lanes> void put_mask(Wave &w, u64 r, u64 mask) {
    w.s[r] = static_cast<u32>(mask);
    if (lanes == 64) w.s[r + 1] = static_cast<u32>(mask >> 32);
}
template <unsigned lanes> u64 mask(const Wave &w, u64 r) {
    return lanes == 64 ? w.s[r] | u64{w.s[r + 1]} << 32 : w.s[r];
}
inline void put_exec(Wave &w, u64 mask) {
    w.s[exec_register] = static_cast<u32>(mask);
    w.s[exec_register + 1] = static_cast<u32>(mask >> 32);
}

inline unsigned first_lane(u64 mask) {
    return mask == 0 ? 0 : static_cast<unsigned>(std::countr_zero(mask));
}

// Returns what `lane` holds in another vector register; 0 if that lane is not live.
inline u32 pull(const Wave &w, const Lanes &values, u32 lane) {
    return (w.exec() >> lane & 1) != 0 ? values[lane] : 0;
}

// Returns the lane, within its row of 16, that v_permlane16 selects: four bits for each lane, in
// two scalars.
inline u32 chosen_lane(u32 low, u32 high, unsigned lane) {
    return (lane % 16 < 8 ? low : high) >> 4 * (lane % 8) & 15;
}

struct Fetch {
    bool zero_outside, from_all;
};

// Writes to register `to` the values that the pattern takes from register `from`. Sets w.reached to
// the lanes that receive a value.
template <unsigned lanes> void fetch(Wave &w, u64 to, u64 from, const Pattern &pattern, Fetch how) {
    const Lanes values = w.v[from];
    w.reached = 0;
    for (unsigned lane = 0; lane < lanes; ++lane) {
        const i8 source = pattern[lane];
        if (source == masked_off) continue;
        const bool is_there = source != outside && (how.from_all || (w.exec() >> source & 1) != 0);
        if (!is_there && !how.zero_outside) continue;
        w.v[to][lane] = is_there ? values[static_cast<size_t>(source)] : 0;
        w.reached |= u64{1} << lane;
    }
}

} // namespace amdgpu
