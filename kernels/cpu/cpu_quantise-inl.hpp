// The part of block encoding that `int`, `minmax` and `norm` share: batches of blocks whose scales
// are computed together, values times reciprocals rounded to codes, and exceptional blocks that the
// reference encodes. Compiled once per target.
#if defined(QCCL_CPU_QUANTISE_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef QCCL_CPU_QUANTISE_INL
#undef QCCL_CPU_QUANTISE_INL
#else
#define QCCL_CPU_QUANTISE_INL
#endif

#include "kernels/cpu/cpu_group-inl.hpp"
#include "kernels/cpu/cpu_tiers.hpp"

#include <bit>

HWY_BEFORE_NAMESPACE();
namespace qccl::HWY_NAMESPACE {

// Rounds to nearest, ties to even. No number here is beyond 2^22, so x86 needs no repair of
// overflow. Targets without a rounding instruction add a number whose last place is 1.
HWY_INLINE IntVector to_integers(FloatVector v) {
#if HWY_TARGET == HWY_AVX3
    return IntVector{_mm512_cvtps_epi32(v.raw)};
#elif HWY_TARGET == HWY_AVX2
    return IntVector{_mm256_cvtps_epi32(v.raw)};
#elif HWY_TARGET == HWY_SSE4
    return IntVector{_mm_cvtps_epi32(v.raw)};
#elif HWY_TARGET == HWY_EMU128
    constexpr float places = 0x1.8p23F;
    const Ints d;
    const FloatVector sum = hn::Add(v, hn::Set(Floats(), places));
    return hn::Sub(hn::BitCast(d, sum), hn::Set(d, std::bit_cast<int32_t>(places)));
#else
    return hn::NearestInt(v);
#endif
}

// The pack instructions saturate codes to 16-bit words, and words to bytes, within blocks of 128
// bits. This leaves groups of four bytes in an order that `order` in store_quads undoes.
// `vector(i)` returns lanes() codes from value i on.
#if HWY_TARGET == HWY_AVX3
struct Words512 {
    __m512i first, second;
};
template <size_t groups, class Vector> HWY_INLINE Words512 pack_words(const Vector &vector) {
    const __m512i first = _mm512_packs_epi32(vector(0).raw, vector(16).raw);
    return {first, groups == 1 ? first : _mm512_packs_epi32(vector(32).raw, vector(48).raw)};
}
template <size_t groups> HWY_INLINE void store_quads(__m512i quads, uint8_t *dst) {
    alignas(64) static constexpr uint32_t order[16] = {0, 4, 8,  12, 1, 5, 9,  13,
                                                       2, 6, 10, 14, 3, 7, 11, 15};
    const __m512i bytes = _mm512_permutexvar_epi32(_mm512_load_si512(order), quads);
    if constexpr (groups == 2)
        _mm512_storeu_si512(dst, bytes);
    else
        _mm256_storeu_si256(reinterpret_cast<__m256i *>(dst), _mm512_castsi512_si256(bytes));
}
#elif HWY_TARGET == HWY_AVX2
struct Words256 {
    __m256i first, second;
};
template <class Vector> HWY_INLINE Words256 pack_words(const Vector &vector) {
    return {_mm256_packs_epi32(vector(0).raw, vector(8).raw),
            _mm256_packs_epi32(vector(16).raw, vector(24).raw)};
}
HWY_INLINE void store_quads(__m256i quads, uint8_t *dst) {
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    _mm256_storeu_si256(reinterpret_cast<__m256i *>(dst),
                        _mm256_permutevar8x32_epi32(quads, order));
}
#endif

// Stores codes saturated to Byte: one group, or two if a vector holds half a group. `vector(i)`
// returns lanes() codes from value i on.
template <class Byte, size_t groups, class Vector>
HWY_INLINE void store_bytes(const Vector &vector, uint8_t *dst) {
    [[maybe_unused]] constexpr bool is_signed = std::is_signed_v<Byte>;
#if HWY_TARGET == HWY_AVX3
    const auto [first, second] = pack_words<groups>(vector);
    store_quads<groups>(
        is_signed ? _mm512_packs_epi16(first, second) : _mm512_packus_epi16(first, second), dst);
#elif HWY_TARGET == HWY_AVX2
    const auto [first, second] = pack_words(vector);
    store_quads(is_signed ? _mm256_packs_epi16(first, second) : _mm256_packus_epi16(first, second),
                dst);
#else
    const hn::Rebind<Byte, Ints> bytes;
    auto *to = reinterpret_cast<Byte *>(dst);
    for (size_t i = 0; i < group_values; i += lanes())
        hn::StoreU(hn::DemoteTo(bytes, vector(i)), bytes, to + i);
#endif
}

// Stores codes of 9 to 16 bits in two places: their low bytes, and the bits above as bytes.
template <size_t groups, class Vector>
HWY_INLINE void store_split(const Vector &vector, uint8_t *low, uint8_t *high) {
#if HWY_TARGET == HWY_AVX3
    const auto [first, second] = pack_words<groups>(vector);
    const __m512i byte = _mm512_set1_epi16(0xFF);
    store_quads<groups>(
        _mm512_packus_epi16(_mm512_and_si512(first, byte), _mm512_and_si512(second, byte)), low);
    store_quads<groups>(
        _mm512_packs_epi16(_mm512_srai_epi16(first, 8), _mm512_srai_epi16(second, 8)), high);
#elif HWY_TARGET == HWY_AVX2
    const auto [first, second] = pack_words(vector);
    const __m256i byte = _mm256_set1_epi16(0xFF);
    store_quads(_mm256_packus_epi16(_mm256_and_si256(first, byte), _mm256_and_si256(second, byte)),
                low);
    store_quads(_mm256_packs_epi16(_mm256_srai_epi16(first, 8), _mm256_srai_epi16(second, 8)),
                high);
#else
    const Ints d;
    const hn::Rebind<uint8_t, Ints> low_bytes;
    const hn::Rebind<int8_t, Ints> high_bytes;
    for (size_t i = 0; i < group_values; i += lanes()) {
        const IntVector codes = vector(i);
        hn::StoreU(hn::DemoteTo(low_bytes, hn::And(codes, hn::Set(d, 0xFF))), low_bytes, low + i);
        hn::StoreU(hn::DemoteTo(high_bytes, hn::ShiftRight<8>(codes)), high_bytes,
                   reinterpret_cast<int8_t *>(high) + i);
    }
#endif
}

// Stores codes of type Code. `dst` and `high` are the results of Codes::tile and Codes::high_bytes.
template <class Code, size_t groups, class Vector>
HWY_INLINE void store_codes(const Vector &vector, uint8_t *dst, [[maybe_unused]] uint8_t *high) {
    if constexpr (sizeof(Code) > 1)
        store_split<groups>(vector, dst, high);
    else
        store_bytes<Code, groups>(vector, dst);
}
#if HWY_TARGET == HWY_AVX3
inline constexpr size_t groups_at_once = 2;
#else
inline constexpr size_t groups_at_once = 1;
#endif

// nearest_saturating: the store of the code as a byte does all the clamping that 8 bits need, or
// none is needed.
// stochastic_symmetric: the lowest code is the negative of the highest one.
// powers, powers_stochastic: codes of powers of two (norm_block.hpp), `highest` of them positive.
enum class SimdRounding : uint8_t {
    nearest_saturating,
    nearest,
    stochastic,
    stochastic_symmetric,
    dithered,
    powers,
    powers_stochastic,
};
constexpr bool is_drawn(SimdRounding rounding) {
    return rounding == SimdRounding::stochastic || rounding == SimdRounding::stochastic_symmetric ||
           rounding == SimdRounding::dithered || rounding == SimdRounding::powers_stochastic;
}

// power_code() of norm_block.hpp for lanes() values.
template <bool is_drawn>
HWY_INLINE IntVector power_codes(FloatVector v, FloatVector highest,
                                 [[maybe_unused]] const uint16_t *draws) {
    const Words d;
    const Ints di;
    const WordVector pattern = magnitude_of(v);
    const WordVector levels = hn::BitCast(d, to_integers(highest)),
                     lowest = hn::Sub(hn::Set(d, 128U), levels);
    const WordVector field = hn::Max(hn::ShiftRight<23>(pattern), lowest);
    const WordVector steps_in_one = hn::ShiftLeft<23>(hn::Sub(hn::Set(d, 254U), field));
    FloatVector steps =
        hn::Mul(hn::BitCast(Floats(), pattern), hn::BitCast(Floats(), steps_in_one));
    if constexpr (is_drawn) steps = hn::Floor(hn::Add(steps, unit_noise(draws)));
    const WordVector level = hn::Add(hn::Sub(field, lowest), hn::BitCast(d, to_integers(steps)));
    const IntVector sign = hn::BroadcastSignBit(hn::BitCast(di, v)); // 0 or -1
    return hn::Sub(hn::Xor(hn::BitCast(di, hn::Min(level, levels)), sign), sign);
}

// Adds dither to values of `int`, and keeps those that do not take the last code above it
// (takes_last_code() of uniform_block.hpp).
HWY_INLINE FloatVector with_dither(FloatVector v, FloatVector highest, const uint16_t *draws) {
    const Floats d;
    const FloatVector shift = dither_noise(draws), one = hn::Set(d, 1.0F);
    const FloatVector rest = hn::Sub(one, shift), above = hn::Add(v, hn::Add(highest, one));
    const auto takes_last =
        hn::Lt(hn::Add(above, above), hn::Sub(hn::Mul(rest, rest), hn::Set(d, 0.25F)));
    const FloatVector second = hn::Neg(highest),
                      lowest = hn::IfThenElse(takes_last, hn::Sub(second, one), second);
    return hn::Max(hn::Add(v, shift), lowest);
}

// Rounds scaled values to codes.
template <class Code, SimdRounding rounding>
HWY_INLINE IntVector to_codes(FloatVector v, FloatVector highest,
                              [[maybe_unused]] const uint16_t *draws) {
    if constexpr (rounding == SimdRounding::powers || rounding == SimdRounding::powers_stochastic) {
        return power_codes<is_drawn(rounding)>(v, highest, draws);
    } else {
        if constexpr (rounding == SimdRounding::dithered && std::is_signed_v<Code>)
            v = with_dither(v, highest, draws);
        else if constexpr (rounding == SimdRounding::dithered) // at least -1/2, which becomes 0
            v = hn::Add(v, dither_noise(draws));
        else if constexpr (is_drawn(rounding))
            v = hn::Floor(hn::Add(v, unit_noise(draws)));
        if constexpr (rounding != SimdRounding::nearest_saturating) v = hn::Min(v, highest);
        if constexpr (rounding == SimdRounding::stochastic_symmetric)
            v = hn::Max(v, hn::Neg(highest));
        return to_integers(v);
    }
}

// Parameters that turn the values of blocks into codes: q = round((x - offset) * inverse), at most
// `highest`. The rounding of the scales ensures that no code of `int` or `minmax` falls below the
// lowest.
struct Quantiser {
    const float *offsets = nullptr; // offset_stride floats per block; only minmax has them
    const float *inverses = nullptr;
    float highest = 0;
};
inline constexpr size_t offset_stride = 2;

// Steps through the blocks of a batch group by group.
struct BlockSteps {
    size_t per_block, left, block = 0; // groups of a block; groups left; index in the batch

    explicit BlockSteps(size_t groups) : per_block(groups), left(groups) {}
    HWY_INLINE size_t next() {
        const size_t current = block;
        if (--left == 0) {
            left = per_block;
            block++;
        }
        return current;
    }
};

// Encodes the group at value `at` of a tile with the scale of block a, or two groups with the
// scales of blocks a and b.
template <class Code, SimdRounding rounding, size_t groups>
HWY_INLINE void quantise_groups(const Quantiser &quantiser, size_t a, size_t b, FloatVector highest,
                                const float *x, const uint16_t *draws, size_t at, uint8_t *dst,
                                uint8_t *high) {
    const Floats d;
    FloatVector offset_a = highest, offset_b = highest; // unused by signed codes
    if constexpr (std::is_unsigned_v<Code>) {
        offset_a = hn::Set(d, quantiser.offsets[offset_stride * a]);
        offset_b = groups == 1 ? offset_a : hn::Set(d, quantiser.offsets[offset_stride * b]);
    }
    const FloatVector inverse_a = hn::Set(d, quantiser.inverses[a]);
    const FloatVector inverse_b = groups == 1 ? inverse_a : hn::Set(d, quantiser.inverses[b]);
    const auto vector = [&](size_t i) HWY_ATTR {
        const bool is_a = i < group_values;
        FloatVector v = hn::LoadU(d, x + at + i);
        if constexpr (std::is_unsigned_v<Code>) v = hn::Sub(v, is_a ? offset_a : offset_b);
        v = hn::Mul(v, is_a ? inverse_a : inverse_b);
        return to_codes<Code, rounding>(v, highest, draws ? draws + at + i : nullptr);
    };
    store_codes<Code, groups>(vector, dst + at, high + at);
}

// A batch: `blocks` whole blocks of a range from `block` on, in its groups [begin, end).
struct BlockBatch {
    size_t block, blocks, begin, end;
};

// Encodes a batch. Code is the type that holds a code: int8_t for `norm` and for `int` up to 8
// bits, int16_t beyond, uint8_t for `minmax`.
template <class Code, SimdRounding rounding>
HWY_INLINE void quantise_batch(GroupSource &source, Draws &draws, Codes &codes,
                               const Quantiser &quantiser, const BlockBatch &batch,
                               size_t per_block) {
    const FloatVector highest = hn::Set(Floats(), quantiser.highest);
    BlockSteps steps(per_block);
    for (size_t g = batch.begin; g < batch.end; g += tile_groups) {
        const size_t count = std::min(tile_groups, batch.end - g), values = count * group_values;
        const float *const x = source.tile(g);
        const uint16_t *noise = nullptr;
        if constexpr (is_drawn(rounding)) noise = draws.tile(g, count);
        uint8_t *const bytes = codes.tile(g);
        size_t i = 0;
        for (; i + groups_at_once * group_values <= values; i += groups_at_once * group_values) {
            const size_t a = steps.next(), b = groups_at_once == 1 ? a : steps.next();
            quantise_groups<Code, rounding, groups_at_once>(quantiser, a, b, highest, x, noise, i,
                                                            bytes, codes.high_bytes());
        }
        if (i < values) {
            const size_t a = steps.next();
            quantise_groups<Code, rounding, 1>(quantiser, a, a, highest, x, noise, i, bytes,
                                               codes.high_bytes());
        }
        codes.take(g, count);
    }
}

// Calls prepare(batch, scales), then quantise(batch, scales) for every batch. Preparing the next
// batch before the codes of the last one hides a division, but costs a third of the speed if values
// come from memory: in the order used here the values of one batch load while the codes of the one
// before are computed.
template <class Scales, class Prepare, class Quantise>
HWY_INLINE void for_each_batch(const Groups &groups, size_t batch_blocks, const Prepare &prepare,
                               const Quantise &quantise) {
    const size_t all = groups.blocks();
    const auto batch_at = [&](size_t block) {
        const size_t blocks = std::min(batch_blocks, all - block), begin = block * groups.per_block;
        return BlockBatch{block, blocks, begin,
                          std::min(groups.count, begin + blocks * groups.per_block)};
    };
    Scales scales;
    for (size_t block = 0; block < all; block += batch_blocks) {
        const BlockBatch batch = batch_at(block);
        prepare(batch, scales);
        quantise(batch, scales);
    }
}

// Encodes the blocks that the fast path has left out. `exceptional` has a bit per block of the
// batch.
inline void encode_by_reference(const ChunkRange &range, const Noise &noise, DataType in,
                                const void *src, std::byte *payload, const Groups &groups,
                                const BlockBatch &batch, uint64_t exceptional) {
    for (exceptional &= (uint64_t{1} << batch.blocks) - 1; exceptional != 0;
         exceptional &= exceptional - 1) {
        const size_t block = batch.block + static_cast<size_t>(std::countr_zero(exceptional));
        const size_t begin = block * groups.per_block * group_values;
        ChunkRange part = range;
        part.begin = range.begin + begin;
        part.count = std::min(groups.per_block * group_values, groups.values - begin);
        scalar_kernels().encode(
            part, noise, in, static_cast<const std::byte *>(src) + begin * type_bytes(in), payload);
    }
}

} // namespace qccl::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
