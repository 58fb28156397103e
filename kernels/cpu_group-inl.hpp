// A group, 32 values that share a piece of every plane: where encoders read one, how values become
// codes, and where the codes go. Knows neither codec's scales. Included once per target.
#if defined(QCCL_CPU_GROUP_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef QCCL_CPU_GROUP_INL
#undef QCCL_CPU_GROUP_INL
#else
#define QCCL_CPU_GROUP_INL
#endif

#include "kernels/cpu_copy-inl.hpp"
#include "kernels/cpu_philox-inl.hpp"
#include "kernels/cpu_planes-inl.hpp"

#include <algorithm>

HWY_BEFORE_NAMESPACE();
namespace qccl::HWY_NAMESPACE {

// Groups whose codes or values are at hand at a time; they stay in the first-level cache.
inline constexpr size_t tile_groups = 16;
inline constexpr size_t tile_values = tile_groups * group_values;

// The part of a range that has codes, cut into groups. Blocks are whole groups here, save the last.
struct Groups {
    uint64_t first = 0; // number of the range's first group in the chunk
    size_t count = 0;   // groups
    size_t per_block = 1;
    size_t values = 0; // of the range's elements, how many have codes

    size_t blocks() const { return (count + per_block - 1) / per_block; }
    uint64_t first_block() const { return first / per_block; }
    // Values of the last group; the others are full.
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

// The groups of a range as fp32. Other formats, and a last group that is not full, pass through a
// buffer; that group is filled up with its first value, which changes no extreme.
class Source {
public:
    Source(DataType in, const void *src, const Groups &groups)
        : src_(static_cast<const std::byte *>(src)), in_(in), groups_(groups) {}

    HWY_INLINE const float *group(size_t g) {
        if (in_ == DataType::float32 && g + 1 < groups_.count)
            return reinterpret_cast<const float *>(src_) + g * group_values;
        return converted(g);
    }

private:
    const float *converted(size_t g) {
        const size_t count = g + 1 < groups_.count ? group_values : groups_.last_values();
        copy(DataType::float32, buffer_, in_, src_ + g * group_values * type_bytes(in_), count,
             false);
        std::fill(buffer_ + count, buffer_ + group_values, buffer_[0]);
        return buffer_;
    }

    const std::byte *src_;
    DataType in_;
    Groups groups_;
    HWY_ALIGN float buffer_[group_values];
};

// Draws for the groups of a range, asked for in order.
class Draws {
public:
    Draws(const ChunkRange &range, const Noise &noise)
        : noise_(noise), index_(noise.first_index + range.begin) {}

    HWY_INLINE const uint16_t *group(size_t g) {
        if (g >= end_) refill(g);
        return buffer_ + index_ % philox_draws + (g + tile_groups - end_) * group_values;
    }

private:
    void refill(size_t g) {
        end_ = g + tile_groups;
        fill_draws(noise_, (index_ + g * group_values) / philox_draws,
                   tile_values / philox_draws + 1, buffer_);
    }

    Noise noise_;
    uint64_t index_; // of the range's first element
    size_t end_ = 0; // the buffer holds the draws of the tile_groups groups before this one
    // One block more than a tile where it starts in the midst of one, rounded up to full vectors.
    HWY_ALIGN uint16_t buffer_[tile_values + 8 * philox_draws];
};

// Where codes go: in place with 8 bits, through a tile of bytes into the planes otherwise.
class Codes {
public:
    Codes(const ChunkRange &range, const Groups &groups, std::byte *payload)
        : range_(range), groups_(groups), payload_(payload) {}

    // Where the codes of group g are to be written; groups come in order.
    HWY_INLINE uint8_t *group(size_t g) {
        if (range_.codec->bits == 8)
            return reinterpret_cast<uint8_t *>(payload_) + range_.layout->plane8 +
                   (groups_.first + g) * group_values;
        if (g == start_ + tile_groups) flush(g);
        return tile_ + (g - start_) * group_values;
    }
    // Packs what is there; `end` is the first group that is not. What the last group holds behind
    // its values becomes 0.
    void flush(size_t end) {
        if (end == start_) return;
        if (end == groups_.count) {
            uint8_t *const last = group(end - 1);
            std::fill(last + groups_.last_values(), last + group_values, uint8_t{0});
        }
        if (range_.codec->bits == 8) return;
        pack_groups(tile_, end - start_, range_.codec->bits, *range_.layout, groups_.first + start_,
                    payload_);
        start_ = end;
    }

private:
    const ChunkRange &range_;
    const Groups &groups_;
    std::byte *payload_;
    size_t start_ = 0; // first group of the tile
    HWY_ALIGN uint8_t tile_[tile_values];
};

// Nearest, ties to even. |v| < 2^31 here, so that x86 needs no repair of overflow.
HWY_INLINE IntVector to_integers(FloatVector v) {
#if HWY_TARGET == HWY_AVX3
    return IntVector{_mm512_cvtps_epi32(v.raw)};
#elif HWY_TARGET == HWY_AVX2
    return IntVector{_mm256_cvtps_epi32(v.raw)};
#elif HWY_TARGET == HWY_SSE4
    return IntVector{_mm_cvtps_epi32(v.raw)};
#else
    return hn::NearestInt(v);
#endif
}

// Stores a group's codes, saturated to Byte; `vector(i)` gives lanes() of them from value i on.
template <class Byte, class Vector>
HWY_INLINE void store_bytes(const Vector &vector, uint8_t *dst) {
    [[maybe_unused]] constexpr bool is_signed = std::is_signed_v<Byte>;
#if HWY_TARGET == HWY_AVX3
    // Packing works within 128-bit blocks: quads of bytes come out as 0 4 1 5 2 6 3 7, twice.
    alignas(64) static constexpr uint32_t order[16] = {0, 4, 8, 12, 1, 5, 9, 13};
    const __m512i words = _mm512_packs_epi32(vector(0).raw, vector(16).raw);
    const __m512i quads =
        is_signed ? _mm512_packs_epi16(words, words) : _mm512_packus_epi16(words, words);
    const __m512i bytes = _mm512_permutexvar_epi32(_mm512_load_si512(order), quads);
    _mm256_storeu_si256(reinterpret_cast<__m256i *>(dst), _mm512_castsi512_si256(bytes));
#elif HWY_TARGET == HWY_AVX2
    const __m256i first = _mm256_packs_epi32(vector(0).raw, vector(8).raw);
    const __m256i second = _mm256_packs_epi32(vector(16).raw, vector(24).raw);
    const __m256i quads =
        is_signed ? _mm256_packs_epi16(first, second) : _mm256_packus_epi16(first, second);
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    _mm256_storeu_si256(reinterpret_cast<__m256i *>(dst),
                        _mm256_permutevar8x32_epi32(quads, order));
#else
    const hn::Rebind<Byte, Ints> bytes;
    auto *to = reinterpret_cast<Byte *>(dst);
    for (size_t i = 0; i < group_values; i += lanes())
        hn::StoreU(hn::DemoteTo(bytes, vector(i)), bytes, to + i);
#endif
}

// lanes() draws as fp32 of [0, 1).
HWY_INLINE FloatVector unit_noise(const uint16_t *draws) {
    const hn::Rebind<uint16_t, Floats> narrow;
    const IntVector k = hn::PromoteTo(Ints(), hn::LoadU(narrow, draws));
    return hn::Mul(hn::ConvertTo(Floats(), k), hn::Set(Floats(), 0x1p-16F));
}

// What turns x into a code: q = round((x - offset) * inverse), at most `highest`. That no code
// falls below the lowest follows from how `inverse` is rounded.
struct Quantiser {
    float offset = 0, inverse = 0, highest = 0;
};

// int has signed codes and no offset. Nearest codes of 8 bits need no clamp: they saturate.
template <class Byte, bool is_stochastic>
HWY_INLINE void quantise_group(const Quantiser &quantiser, bool clamps, const float *x,
                               const uint16_t *draws, uint8_t *dst) {
    const Floats d;
    const FloatVector offset = hn::Set(d, quantiser.offset),
                      inverse = hn::Set(d, quantiser.inverse),
                      highest = hn::Set(d, quantiser.highest);
    const auto vector = [&](size_t i) HWY_ATTR {
        FloatVector v = hn::LoadU(d, x + i);
        if constexpr (std::is_unsigned_v<Byte>) v = hn::Sub(v, offset);
        v = hn::Mul(v, inverse);
        if constexpr (is_stochastic) v = hn::Floor(hn::Add(v, unit_noise(draws + i)));
        if (clamps) v = hn::Min(v, highest);
        return to_integers(v);
    };
    store_bytes<Byte>(vector, dst);
}

} // namespace qccl::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
