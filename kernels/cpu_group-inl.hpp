// A group is 32 values that share a piece of every plane. This file reads groups for the encoders,
// draws their noise and stores their codes. Compiled once per target.
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

// Provides the groups of a range as fp32, one tile at a time. Other formats, and a tile that the
// range does not fill, are converted into a buffer. The rest of that buffer repeats the first value
// of the last group, which changes no extreme.
class Source {
public:
    Source(DataType in, const void *src, const Groups &groups)
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
        const uint64_t first = index_ + g * group_values;
        const size_t blocks = count * group_values / philox_draws + 1;
        fill_draws(noise_, first / philox_draws, blocks, buffer_);
        return buffer_ + first % philox_draws;
    }

private:
    Noise noise_;
    uint64_t index_; // index of the range's first element in the caller's tensor
    // A tile needs one generator block more if it starts within a block. Rounded up to full
    // vectors.
    HWY_ALIGN uint16_t buffer_[tile_values + 8 * philox_draws];
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
