// A group, 32 values that share a piece of every plane: where encoders read groups, their noise,
// and where the codes go. Knows no scales. Included once per target.
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
// Of wider codes the low bytes go in place and what lies above them through bytes.
class Codes {
public:
    Codes(const ChunkRange &range, const Groups &groups, std::byte *payload)
        : range_(range), groups_(groups), payload_(payload) {}

    HWY_INLINE uint8_t *tile(size_t g) { return range_.codec->bits >= 8 ? in_place(g) : buffer_; }
    // Of codes of more than 8 bits, what lies above the low bytes that tile() has.
    HWY_INLINE uint8_t *high_bytes() { return buffer_; }
    // Takes the `count` groups that tile(g) holds now. What the last group of all holds behind its
    // values becomes 0.
    HWY_INLINE void take(size_t g, size_t count) {
        if (g + count == groups_.count) {
            clear_rest(tile(g), count);
            if (range_.codec->bits > 8) clear_rest(buffer_, count);
        }
        const int packed_bits = range_.codec->bits & 7; // those that the plane of 8 has not
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

// Each number as often as a block has values.
template <size_t block> HWY_INLINE void spread(const float *numbers, size_t count, float *to) {
    const hn::CappedTag<float, block> d;
    for (size_t i = 0; i < count; i++)
        for (size_t j = 0; j < block; j += hn::Lanes(d))
            hn::StoreU(hn::Set(d, numbers[i]), d, to + i * block + j);
}

} // namespace qccl::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
