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

// The groups of a range as fp32, a tile at a time. Other formats, and a tile that the range does
// not fill, pass through a buffer; there the last group is filled up with its first value and the
// tile with that group, which changes no extreme.
class Source {
public:
    Source(DataType in, const void *src, const Groups &groups)
        : src_(static_cast<const std::byte *>(src)), in_(in), values_(groups.values) {}

    // The groups from g on; all of a tile may be read.
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

// The draws for a range, a tile at a time.
class Draws {
public:
    Draws(const ChunkRange &range, const Noise &noise)
        : noise_(noise), index_(noise.first_index + range.begin) {}

    HWY_INLINE const uint16_t *tile(size_t g, size_t count) {
        const uint64_t first = index_ + g * group_values;
        const size_t blocks = count * group_values / philox_draws + 1;
        fill_draws(noise_, first / philox_draws, blocks, buffer_);
        return buffer_ + first % philox_draws;
    }

private:
    Noise noise_;
    uint64_t index_; // of the range's first element
    // One block more than a tile where it starts in the midst of one, rounded up to full vectors.
    HWY_ALIGN uint16_t buffer_[tile_values + 8 * philox_draws];
};

// Where codes go, a tile at a time: in place with 8 bits, through bytes into the planes otherwise.
class Codes {
public:
    Codes(const ChunkRange &range, const Groups &groups, std::byte *payload)
        : range_(range), groups_(groups), payload_(payload) {}

    HWY_INLINE uint8_t *tile(size_t g) { return range_.codec->bits == 8 ? in_place(g) : buffer_; }
    // Takes the `count` groups that tile(g) holds now. What the last group of all holds behind its
    // values becomes 0.
    HWY_INLINE void take(size_t g, size_t count) {
        if (g + count == groups_.count) {
            uint8_t *const last = tile(g) + (count - 1) * group_values;
            std::fill(last + groups_.last_values(), last + group_values, uint8_t{0});
        }
        if (range_.codec->bits != 8)
            pack_groups(buffer_, count, range_.codec->bits, *range_.layout, groups_.first + g,
                        payload_);
    }

private:
    uint8_t *in_place(size_t g) {
        return reinterpret_cast<uint8_t *>(payload_) + range_.layout->plane8 +
               (groups_.first + g) * group_values;
    }

    const ChunkRange &range_;
    const Groups &groups_;
    std::byte *payload_;
    HWY_ALIGN uint8_t buffer_[tile_values];
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

// saturate: nearest, and storing as a byte is all the clamping that 8 bits need.
enum class CodeRounding : uint8_t { saturate, nearest, stochastic };

// What turns the values of blocks into codes: q = round((x - offset) * inverse), at most `highest`.
// That no code falls below the lowest follows from how scales are rounded.
struct Quantiser {
    const float *offsets =
        nullptr; // one in `offset_stride` floats per block; minmax alone has them
    const float *inverses = nullptr;
    float highest = 0;
};
inline constexpr size_t offset_stride = 2;

template <class Byte, CodeRounding rounding>
HWY_INLINE void quantise_group(const float *x, const uint16_t *draws, FloatVector offset,
                               FloatVector inverse, FloatVector highest, uint8_t *dst) {
    const auto vector = [&](size_t i) HWY_ATTR {
        FloatVector v = hn::LoadU(Floats(), x + i);
        if constexpr (std::is_unsigned_v<Byte>) v = hn::Sub(v, offset);
        v = hn::Mul(v, inverse);
        if constexpr (rounding == CodeRounding::stochastic)
            v = hn::Floor(hn::Add(v, unit_noise(draws + i)));
        if constexpr (rounding != CodeRounding::saturate) v = hn::Min(v, highest);
        return to_integers(v);
    };
    store_bytes<Byte>(vector, dst);
}

// A batch of whole blocks, whose first group is `begin` of the range; `end` is behind its last.
template <class Byte, CodeRounding rounding>
HWY_INLINE void quantise_blocks(Source &source, Draws &draws, Codes &codes,
                                const Quantiser &quantiser, size_t begin, size_t end,
                                size_t per_block) {
    const Floats d;
    const FloatVector highest = hn::Set(d, quantiser.highest);
    size_t block = 0, left = per_block; // groups of this block
    for (size_t g = begin; g < end; g += tile_groups) {
        const size_t count = std::min(tile_groups, end - g);
        const float *const x = source.tile(g);
        const uint16_t *noise = nullptr;
        if constexpr (rounding == CodeRounding::stochastic) noise = draws.tile(g, count);
        uint8_t *const bytes = codes.tile(g);
        for (size_t i = 0; i < count * group_values; i += group_values) {
            FloatVector offset = highest; // unused by signed codes
            if constexpr (std::is_unsigned_v<Byte>)
                offset = hn::Set(d, quantiser.offsets[offset_stride * block]);
            const FloatVector inverse = hn::Set(d, quantiser.inverses[block]);
            quantise_group<Byte, rounding>(x + i, noise + i, offset, inverse, highest, bytes + i);
            if (--left == 0) {
                left = per_block;
                block++;
            }
        }
        codes.take(g, count);
    }
}

} // namespace qccl::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
