// Divides values of 16 and 32 bits into symbols and raw bits with vectors, and joins them again, as
// packed payloads have them; also for segments that leave their zeros out. Compiled once per
// target.

#if defined(QCCL_CPU_VALUES_SPLIT_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef QCCL_CPU_VALUES_SPLIT_INL
#undef QCCL_CPU_VALUES_SPLIT_INL
#else
#define QCCL_CPU_VALUES_SPLIT_INL
#endif

#include "kernels/codec/packing.hpp"
#include "kernels/cpu/cpu_values-inl.hpp"

#include <type_traits>

HWY_BEFORE_NAMESPACE();

namespace qccl::HWY_NAMESPACE {

// Where the raw bits of values lie. A value may be in a lane of its own length or in a longer one.
// Byte is const for those who read.

// Of a value of 16 bits the symbol is below the sign, and the sign is above the raw bits.
template <class Byte> struct HalfPlanes {
    using Bits = uint16_t;
    static constexpr int symbol_place = 7;
    static constexpr size_t value_bytes = 1; // of raw bits
    Byte *raw;

    HWY_INLINE HalfPlanes(Byte *bytes, size_t /*count*/) : raw(bytes) {}
    template <class D> HWY_INLINE void store(D d, hn::Vec<D> v, size_t i) const {
        const hn::Rebind<uint8_t, D> bytes;
        const auto low = hn::And(v, hn::Set(d, 0x7F));
        const auto rest = hn::Or(low, hn::ShiftLeft<7>(hn::ShiftRight<15>(v)));
        hn::StoreU(hn::TruncateTo(bytes, rest), bytes, raw + i);
    }
    // All but the symbol.
    template <class D> HWY_INLINE hn::Vec<D> load(D d, size_t i) const {
        const hn::Rebind<uint8_t, D> bytes;
        const auto rest = hn::PromoteTo(d, hn::LoadU(bytes, raw + i));
        const auto sign = hn::ShiftLeft<15>(hn::ShiftRight<7>(rest));
        return hn::Or(sign, hn::And(rest, hn::Set(d, 0x7F)));
    }
    template <class Other>
    HWY_INLINE void copy(size_t to, HalfPlanes<Other> from, size_t at, size_t count) const {
        std::memcpy(raw + to, from.raw + at, count);
    }
};

// A value of 32 bits has 16 raw bits in one plane, and 7 and the sign in another.
template <class Byte> struct FloatPlanes {
    using Bits = uint32_t;
    using Low = std::conditional_t<std::is_const_v<Byte>, const uint16_t, uint16_t>;
    static constexpr int symbol_place = 23;
    static constexpr size_t value_bytes = 3;
    Low *low; // segments begin at multiples of 4
    Byte *high;

    HWY_INLINE FloatPlanes(Byte *bytes, size_t count)
        : low(reinterpret_cast<Low *>(bytes)), high(bytes + count * sizeof(Low)) {}
    template <class D> HWY_INLINE void store(D d, hn::Vec<D> v, size_t i) const {
        const hn::Rebind<uint8_t, D> bytes;
        const hn::Rebind<uint16_t, D> halves;
        hn::StoreU(hn::TruncateTo(halves, v), halves, low + i);
        const auto fraction = hn::And(hn::ShiftRight<16>(v), hn::Set(d, 0x7F));
        const auto sign = hn::ShiftLeft<7>(hn::ShiftRight<31>(v));
        hn::StoreU(hn::TruncateTo(bytes, hn::Or(fraction, sign)), bytes, high + i);
    }
    template <class D> HWY_INLINE hn::Vec<D> load(D d, size_t i) const {
        const hn::Rebind<uint8_t, D> bytes;
        const hn::Rebind<uint16_t, D> halves;
        const auto upper = hn::PromoteTo(d, hn::LoadU(bytes, high + i));
        const auto fraction = hn::ShiftLeft<16>(hn::And(upper, hn::Set(d, 0x7F)));
        const auto sign = hn::ShiftLeft<31>(hn::ShiftRight<7>(upper));
        const auto rest = hn::Or(fraction, hn::PromoteTo(d, hn::LoadU(halves, low + i)));
        return hn::Or(sign, rest);
    }
    template <class Other>
    HWY_INLINE void copy(size_t to, FloatPlanes<Other> from, size_t at, size_t count) const {
        std::memcpy(low + to, from.low + at, count * sizeof(Low));
        std::memcpy(high + to, from.high + at, count);
    }
};

// ---- All values

template <class D, class Planes>
HWY_INLINE void split_vector(D d, const typename Planes::Bits *values, size_t i, uint8_t *symbols,
                             const Planes &planes) {
    const hn::Rebind<uint8_t, D> bytes;
    const auto v = hn::LoadU(d, values + i);
    hn::StoreU(hn::TruncateTo(bytes, hn::ShiftRight<Planes::symbol_place>(v)), bytes, symbols + i);
    planes.store(d, v, i);
}
template <class D, class Planes>
HWY_INLINE void join_vector(D d, typename Planes::Bits *values, size_t i, const uint8_t *symbols,
                            const Planes &planes) {
    const hn::Rebind<uint8_t, D> bytes;
    const auto symbol = hn::PromoteTo(d, hn::LoadU(bytes, symbols + i));
    const auto v = hn::Or(planes.load(d, i), hn::ShiftLeft<Planes::symbol_place>(symbol));
    hn::StoreU(v, d, values + i);
}

// Calls step(tag, index of the first value) for vectors of values, and for each of those left.
template <class Bits, class Step> HWY_INLINE void for_each_vector(size_t count, Step &&step) {
    const hn::CappedTag<Bits, max_lanes * sizeof(float) / sizeof(Bits)> d;
    size_t i = 0;
    for (; i + hn::Lanes(d) <= count; i += hn::Lanes(d)) step(d, i);
    for (; i < count; i++) step(hn::CappedTag<Bits, 1>(), i);
}

template <template <class> class Planes>
HWY_INLINE void split_values(SymbolSpan span, const std::byte *payload, uint8_t *symbols,
                             std::byte *raw) {
    using Bits = typename Planes<uint8_t>::Bits;
    const Planes<uint8_t> planes(reinterpret_cast<uint8_t *>(raw), span.count);
    const auto *const values = reinterpret_cast<const Bits *>(payload) + span.first;
    for_each_vector<Bits>(span.count,
                          [&](auto d, size_t i) { split_vector(d, values, i, symbols, planes); });
}
template <template <class> class Planes>
HWY_INLINE void join_values(SymbolSpan span, const uint8_t *symbols, const std::byte *raw,
                            std::byte *payload) {
    using Bits = typename Planes<uint8_t>::Bits;
    const Planes<const uint8_t> planes(reinterpret_cast<const uint8_t *>(raw), span.count);
    auto *const values = reinterpret_cast<Bits *>(payload) + span.first;
    for_each_vector<Bits>(span.count,
                          [&](auto d, size_t i) { join_vector(d, values, i, symbols, planes); });
}

// ---- Values without the zeros

#undef QCCL_HAS_SPREAD
#if HWY_HAVE_SCALABLE || HWY_TARGET == HWY_EMU128
#define QCCL_HAS_SPREAD 0 // emulated vectors are slower than the reference
#else
#define QCCL_HAS_SPREAD 1
inline constexpr size_t row_lanes = hn::MaxLanes(Words());

// Spreads the first lanes of `v` over the lanes of the mask, in their order. What the other lanes
// have means nothing.
#if HWY_TARGET <= HWY_AVX3
HWY_INLINE WordVector spread_over(WordVector v, hn::Mask<Words> mask) {
    return WordVector{_mm512_maskz_expand_epi32(mask.raw, v.raw)};
}
#else
static_assert(row_lanes <= 8);
// For each mask of up to 8 lanes, how many of them lie before each lane.
struct SpreadTable {
    uint8_t before[256][8];
};
inline constexpr SpreadTable spread_table = [] {
    SpreadTable table{};
    for (uint32_t mask = 0; mask < 256; mask++)
        for (uint32_t lane = 1; lane < 8; lane++)
            table.before[mask][lane] =
                static_cast<uint8_t>(table.before[mask][lane - 1] + (mask >> (lane - 1) & 1));
    return table;
}();
HWY_INLINE WordVector spread_over(WordVector v, hn::Mask<Words> mask) {
    const hn::Rebind<uint8_t, Words> bytes;
    const uint8_t *const before = spread_table.before[bits_of_mask(Words(), mask)];
    const auto lane = hn::PromoteTo(Words(), hn::LoadU(bytes, before));
    return hn::TableLookupLanes(v, hn::IndicesFromVec(Words(), lane));
}
#endif

// Values of 16 or 32 bits in lanes of 32.
HWY_INLINE WordVector load_words(const uint32_t *values) { return hn::LoadU(Words(), values); }
HWY_INLINE WordVector load_words(const uint16_t *values) {
    const hn::Rebind<uint16_t, Words> halves;
    return hn::PromoteTo(Words(), hn::LoadU(halves, values));
}
HWY_INLINE void store_words(WordVector v, uint32_t *values) { hn::StoreU(v, Words(), values); }
HWY_INLINE void store_words(WordVector v, uint16_t *values) {
    const hn::Rebind<uint16_t, Words> halves;
    hn::StoreU(hn::TruncateTo(halves, v), halves, values);
}

// Splits or joins a vector at a time, and keeps where the next raw bits lie. Vectors that would
// reach beyond the planes go through `tail_`.
template <template <class> class PlanesOf, class Byte> class OmittingVectors {
public:
    using Planes = PlanesOf<Byte>;
    using Bits = typename Planes::Bits;

    HWY_INLINE OmittingVectors(OmittedZeros zeros, Byte *raw)
        : zeros_(zeros), planes_(raw, zeros.others), tail_(tail_bytes_, row_lanes) {}

    HWY_INLINE void split(const Bits *values, uint8_t *symbols) {
        const Words d;
        const hn::Rebind<uint8_t, Words> bytes;
        const WordVector v = load_words(values);
        const auto is_other = hn::Ne(v, hn::Zero(d));
        const WordVector symbol = hn::IfThenElse(is_other, hn::ShiftRight<Planes::symbol_place>(v),
                                                 hn::Set(d, uint32_t{zeros_.symbol}));
        hn::StoreU(hn::TruncateTo(bytes, symbol), bytes, symbols);
        const WordVector others = hn::Compress(v, is_other);
        const size_t count = hn::CountTrue(d, is_other);
        if (next_ + row_lanes <= zeros_.others) {
            planes_.store(d, others, next_);
        } else {
            tail_.store(d, others, 0);
            planes_.copy(next_, tail_, 0, count);
        }
        next_ += count;
    }

    HWY_INLINE void join(const uint8_t *symbols, Bits *values) {
        const Words d;
        const hn::Rebind<uint8_t, Words> bytes;
        const WordVector symbol = hn::PromoteTo(d, hn::LoadU(bytes, symbols));
        const auto is_other = hn::Ne(symbol, hn::Set(d, uint32_t{zeros_.symbol}));
        WordVector others;
        if (next_ + row_lanes <= zeros_.others) {
            others = planes_.load(d, next_);
        } else {
            tail_.copy(0, planes_, next_, zeros_.others - next_);
            others = tail_.load(d, 0);
        }
        const WordVector v =
            hn::Or(spread_over(others, is_other), hn::ShiftLeft<Planes::symbol_place>(symbol));
        store_words(hn::IfThenElseZero(is_other, v), values);
        next_ += hn::CountTrue(d, is_other);
    }

private:
    OmittedZeros zeros_;
    Planes planes_;
    size_t next_ = 0;
    alignas(uint16_t) uint8_t tail_bytes_[row_lanes * Planes::value_bytes] = {};
    PlanesOf<uint8_t> tail_;
};

template <template <class> class Planes>
HWY_INLINE void split_others(SymbolSpan span, OmittedZeros zeros, const std::byte *payload,
                             uint8_t *symbols, std::byte *raw) {
    using Bits = typename Planes<uint8_t>::Bits;
    OmittingVectors<Planes, uint8_t> vectors(zeros, reinterpret_cast<uint8_t *>(raw));
    const auto *const values = reinterpret_cast<const Bits *>(payload) + span.first;
    const size_t whole = span.count / row_lanes * row_lanes, left = span.count - whole;
    for (size_t i = 0; i < whole; i += row_lanes) vectors.split(values + i, symbols + i);
    if (left == 0) return;
    Bits last[row_lanes] = {}; // filled up with zeros
    uint8_t last_symbols[row_lanes];
    std::memcpy(last, values + whole, left * sizeof(Bits));
    vectors.split(last, last_symbols);
    std::memcpy(symbols + whole, last_symbols, left);
}

template <template <class> class Planes>
HWY_INLINE void join_others(SymbolSpan span, OmittedZeros zeros, const uint8_t *symbols,
                            const std::byte *raw, std::byte *payload) {
    using Bits = typename Planes<uint8_t>::Bits;
    OmittingVectors<Planes, const uint8_t> vectors(zeros, reinterpret_cast<const uint8_t *>(raw));
    auto *const values = reinterpret_cast<Bits *>(payload) + span.first;
    const size_t whole = span.count / row_lanes * row_lanes, left = span.count - whole;
    for (size_t i = 0; i < whole; i += row_lanes) vectors.join(symbols + i, values + i);
    if (left == 0) return;
    Bits last[row_lanes];
    uint8_t last_symbols[row_lanes];
    std::memset(last_symbols, zeros.symbol, row_lanes);
    std::memcpy(last_symbols, symbols + whole, left);
    vectors.join(last_symbols, last);
    std::memcpy(values + whole, last, left * sizeof(Bits));
}

#endif

} // namespace qccl::HWY_NAMESPACE

HWY_AFTER_NAMESPACE();
#endif
