// Encodes and decodes `topk`. The encoder narrows the threshold down: a sample of the values
// proposes bounds, a pass over the values counts how many lie between the bounds, in bins of equal
// width, and the bin of the threshold has the next bounds. A wrong proposal costs a pass and
// changes no result. The last pass finds the values that are kept. Values of 8 and 16 bits are
// compared as the fp32 numbers that they are, which have the same order. Nothing is allocated. Any
// thread may call; nothing blocks. Compiled once per target.

#if defined(QCCL_CPU_SPARSE_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef QCCL_CPU_SPARSE_INL
#undef QCCL_CPU_SPARSE_INL
#else
#define QCCL_CPU_SPARSE_INL
#endif

#include "codec/chunk.hpp"
#include "device/kernels.hpp"
#include "kernels/cpu/cpu_values-inl.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>

HWY_BEFORE_NAMESPACE();

namespace qccl::HWY_NAMESPACE {

// Values that are processed at a time; what is found among them stays in the first-level cache.
inline constexpr size_t sparse_tile = 1024;
static_assert(topk_page_values % sparse_tile == 0);

// ---- Values

// The bits of a magnitude. They order infinities above all numbers, and NaN, which is canonical,
// above infinities.
HWY_INLINE IntVector magnitudes_of(FloatVector v) {
    const Ints d;
    const IntVector magnitude = hn::And(hn::BitCast(d, v), hn::Set(d, INT32_MAX));
    const auto is_nan = hn::Gt(magnitude, hn::Set(d, static_cast<int32_t>(float_infinity)));
    return hn::IfThenElse(is_nan, hn::Set(d, static_cast<int32_t>(float_nan)), magnitude);
}
HWY_INLINE int32_t magnitude_bits(float x) {
    return static_cast<int32_t>(std::bit_cast<uint32_t>(canonical(x)) & INT32_MAX);
}

// Returns a bit for each of the next 64 values: whether `test` holds for its magnitude.
inline constexpr size_t mask_values = 64;
template <class Test> HWY_INLINE uint64_t mask_of(const float *x, const Test &test) {
    uint64_t bits = 0;
    for (size_t i = 0; i < mask_values; i += lanes()) {
        const auto holds = test(magnitudes_of(hn::LoadU(Floats(), x + i)));
        bits |= uint64_t{bits_of_mask(hn::RebindMask(Floats(), holds))} << i;
    }
    return bits;
}
template <class Take> HWY_INLINE void each_bit(uint64_t bits, const Take &take) {
    for (; bits != 0; bits &= bits - 1) take(static_cast<size_t>(std::countr_zero(bits)));
}

// Provides the values of a chunk, rounded to the tensor's type, as fp32. The type is not fp64.
class SparseSource {
public:
    SparseSource(DataType type, DataType in, const void *src)
        : src_(static_cast<const std::byte *>(src)), type_(type), in_(in) {}

    // Returns `count` values, at most a tile.
    HWY_INLINE const float *values(uint64_t from, size_t count) {
        if (type_ == DataType::float32) return reinterpret_cast<const float *>(src_) + from;
        return converted(from, count);
    }
    int32_t magnitude(uint64_t at) { return magnitude_bits(*values(at, 1)); }

private:
    HWY_NOINLINE const float *converted(uint64_t from, size_t count) {
        const std::byte *narrow = src_ + from * type_bytes(in_);
        uint16_t rounded[sparse_tile];
        if (in_ != type_) {
            copy(type_, rounded, in_, narrow, count, false);
            narrow = reinterpret_cast<const std::byte *>(rounded);
        }
        copy(DataType::float32, buffer_, type_, narrow, count, false);
        return buffer_;
    }

    const std::byte *src_;
    DataType type_, in_;
    HWY_ALIGN float buffer_[sparse_tile];
};

// ---- Threshold

// Bounds of the threshold's magnitude, low <= magnitude < high.
struct MagnitudeBounds {
    int64_t low = 0, high = int64_t{1} << 31;
};

// The encoder keeps the magnitudes above the threshold, and the first `ties` of those that equal
// it.
struct SparseThreshold {
    int32_t magnitude = 0;
    uint64_t ties = 0;
};

// Where values lie: from `high` up, at `low`, and in bins between these.
struct MagnitudeBins {
    static constexpr int bits = 11;

    MagnitudeBounds bounds;
    int shift; // a bin has 2^shift magnitudes
    uint64_t above = 0, lowest = 0;
    uint64_t inside[1 << bits] = {};

    explicit MagnitudeBins(const MagnitudeBounds &between)
        : bounds(between), shift(std::max(static_cast<int>(std::bit_width(static_cast<uint64_t>(
                                              between.high - between.low - 1))) -
                                              bits,
                                          0)) {}
    HWY_INLINE void count(int32_t magnitude) {
        above += magnitude >= bounds.high;
        lowest += magnitude == bounds.low;
        if (magnitude > bounds.low && magnitude < bounds.high) count_inside(magnitude);
    }
    HWY_INLINE void count_inside(int32_t magnitude) {
        inside[static_cast<uint64_t>(magnitude - bounds.low) >> shift]++;
    }
};

// Counts a tile's values. Those between the bounds are few if the bounds are good.
HWY_INLINE void count_tile(const float *x, size_t count, MagnitudeBins &bins) {
    const Ints d;
    const IntVector low = hn::Set(d, static_cast<int32_t>(bins.bounds.low)),
                    last = hn::Set(d, static_cast<int32_t>(bins.bounds.high - 1));
    IntVector above = hn::Zero(d), lowest = above; // count down
    const size_t full = count / mask_values * mask_values;
    for (size_t i = 0; i < full; i += mask_values) {
        const uint64_t inside = mask_of(x + i, [&](IntVector magnitude) HWY_ATTR {
            const auto is_above = hn::Gt(magnitude, last);
            above = hn::Add(above, hn::VecFromMask(d, is_above));
            lowest = hn::Add(lowest, hn::VecFromMask(d, hn::Eq(magnitude, low)));
            return hn::AndNot(is_above, hn::Gt(magnitude, low));
        });
        each_bit(inside, [&](size_t j) HWY_ATTR { bins.count_inside(magnitude_bits(x[i + j])); });
    }
    const auto sum_of = [&](IntVector counter) HWY_ATTR {
        return static_cast<uint64_t>(-int64_t{hn::GetLane(hn::SumOfLanes(d, counter))});
    };
    bins.above += sum_of(above);
    bins.lowest += sum_of(lowest);
    for (size_t i = full; i < count; i++) bins.count(magnitude_bits(x[i]));
}

// Proposes bounds for the `kept`th largest of `count` magnitudes: those of a sample, some of its
// standard deviations before and behind the expected place.
inline MagnitudeBounds sampled_bounds(SparseSource &source, uint64_t count, uint64_t kept) {
    constexpr uint64_t most = 4096, least = 32, values_each = 128;
    const uint64_t number = std::min(count / values_each, most);
    MagnitudeBounds bounds;
    if (number < least) return bounds;
    int32_t sample[most];
    for (uint64_t i = 0; i < number; i++) sample[i] = source.magnitude(i * (count / number));
    const double place =
        static_cast<double>(kept) / static_cast<double>(count) * static_cast<double>(number);
    const double margin = 4 * std::sqrt(place) + 4;
    int32_t *end = sample + number;
    const auto at = [&](double where) {
        int32_t *const found = sample + static_cast<uint64_t>(std::max(where, 0.0));
        std::nth_element(sample, found, end, std::greater<>());
        return found;
    };
    if (place + margin < static_cast<double>(number)) {
        end = at(place + margin);
        bounds.low = *end++;
    }
    if (place - margin < static_cast<double>(number))
        bounds.high = int64_t{*at(place - margin)} + 1;
    return bounds;
}

// Every pass over the values narrows the bounds, until they hold the threshold alone.
inline SparseThreshold find_threshold(SparseSource &source, uint64_t count, uint64_t kept) {
    MagnitudeBounds known, tried = sampled_bounds(source, count, kept);
    for (;;) {
        MagnitudeBins bins(tried);
        for (uint64_t from = 0; from < count; from += sparse_tile) {
            const size_t part = std::min<uint64_t>(sparse_tile, count - from);
            count_tile(source.values(from, part), part, bins);
        }
        if (bins.above >= kept) {
            known.low = tried.high;
        } else {
            uint64_t ties = kept - bins.above;
            size_t bin = std::size(bins.inside);
            while (bin > 0 && bins.inside[bin - 1] < ties) ties -= bins.inside[--bin];
            if (bin > 0) {
                const int64_t start = tried.low + (static_cast<int64_t>(bin - 1) << bins.shift);
                if (bins.shift == 0) return {static_cast<int32_t>(start), ties};
                known = {std::max(start, tried.low + 1),
                         std::min(start + (int64_t{1} << bins.shift), tried.high)};
            } else if (bins.lowest >= ties) {
                return {static_cast<int32_t>(tried.low), ties};
            } else {
                known.high = tried.low;
            }
        }
        tried = known;
    }
}

// ---- Encode

// Writes the indices of the tile's values that are kept to `found`, and returns their number.
HWY_INLINE size_t find_kept(const float *x, size_t count, SparseThreshold &left, uint16_t *found) {
    const Ints d;
    const IntVector threshold = hn::Set(d, left.magnitude);
    size_t full = count / mask_values * mask_values, number = 0, equal = 0;
    if (left.ties != 0)
        for (size_t i = 0; i < full; i += mask_values)
            equal +=
                static_cast<size_t>(std::popcount(mask_of(x + i, [&](IntVector magnitude) HWY_ATTR {
                    return hn::Eq(magnitude, threshold);
                })));
    if (equal > left.ties) full = 0; // some of the equal ones are kept
    const IntVector below = hn::Sub(threshold, hn::Set(d, left.ties != 0 ? 1 : 0));
    if (full != 0) left.ties -= equal;
    for (size_t i = 0; i < full; i += mask_values) {
        const uint64_t kept =
            mask_of(x + i, [&](IntVector magnitude) HWY_ATTR { return hn::Gt(magnitude, below); });
        each_bit(kept, [&](size_t j) { found[number++] = static_cast<uint16_t>(i + j); });
    }
    for (size_t i = full; i < count; i++) {
        const int32_t magnitude = magnitude_bits(x[i]);
        if (magnitude < left.magnitude || (magnitude == left.magnitude && left.ties == 0)) continue;
        left.ties -= magnitude == left.magnitude;
        found[number++] = static_cast<uint16_t>(i);
    }
    return number;
}

// The range is the whole chunk, and its type is not fp64.
inline void encode_largest(const ChunkRange &range, DataType in, const void *src,
                           std::byte *payload) {
    if (range.count == 0) return;
    const PayloadLayout &layout = *range.layout;
    SparseSource source(range.type, in, src);
    SparseThreshold left = find_threshold(source, range.count, layout.kept);
    uint16_t found[sparse_tile];
    float values[sparse_tile];
    uint64_t kept = 0, before = 0; // before the page
    for (uint64_t from = 0; from < range.count; from += sparse_tile) {
        const size_t count = std::min<uint64_t>(sparse_tile, range.count - from);
        const float *const x = source.values(from, count);
        const size_t number = find_kept(x, count, left, found);
        for (size_t i = 0; i < number; i++) {
            values[i] = canonical(x[found[i]]);
            store_bits(payload + layout.indices, kept + i,
                       static_cast<uint16_t>(from % topk_page_values + found[i]));
        }
        copy(range.type, payload + layout.kept_values + kept * type_bytes(range.type),
             DataType::float32, values, number, false);
        kept += number;
        if ((from + count) % topk_page_values != 0 && from + count < range.count) continue;
        store_bits(payload + layout.page_counts, from / topk_page_values,
                   static_cast<uint32_t>(kept - before));
        before = kept;
    }
}

// ---- Decode

// Walks through the kept values of a chunk from the element `first` on.
class KeptValues {
public:
    KeptValues(const ChunkRange &range, const std::byte *payload, uint64_t first)
        : counts_(payload + range.layout->page_counts), indices_(payload + range.layout->indices) {
        for (; page_ < first / topk_page_values; page_++) at_ += count_of(page_);
        page_end_ = at_ + count_of(page_);
        uint64_t end = page_end_;
        while (at_ < end) {
            const uint64_t middle = (at_ + end) / 2;
            if (element(middle) < first)
                at_ = middle + 1;
            else
                end = middle;
        }
    }

    // Calls take(element, number) for the values that are left before the element `end`, in order.
    template <class Take> HWY_INLINE void take_until(uint64_t end, const Take &take) {
        for (;;) {
            for (; at_ < page_end_; at_++) {
                const uint64_t next = element(at_);
                if (next >= end) return;
                take(next, at_);
            }
            if ((page_ + 1) * topk_page_values >= end) return;
            page_end_ += count_of(++page_);
        }
    }

private:
    uint64_t count_of(uint64_t page) const { return load_bits<uint32_t>(counts_, page); }
    HWY_INLINE uint64_t element(uint64_t number) const {
        return page_ * topk_page_values + load_bits<uint16_t>(indices_, number);
    }

    const std::byte *counts_, *indices_;
    uint64_t page_ = 0, at_ = 0, page_end_ = 0;
};

// Writes the elements [begin, end) of the chunk to `dst`.
HWY_INLINE void spread_kept(KeptValues &kept, const ChunkRange &range, const std::byte *payload,
                            uint64_t begin, uint64_t end, DataType out, std::byte *dst) {
    const std::byte *const values = payload + range.layout->kept_values;
    std::memset(dst, 0, (end - begin) * type_bytes(out));
    if (range.type == DataType::float32 && out == DataType::float32)
        return kept.take_until(end, [&](uint64_t element, uint64_t number) HWY_ATTR {
            store_bits(dst, element - begin, canonical(load_bits<float>(values, number)));
        });
    kept.take_until(end, [&](uint64_t element, uint64_t number) HWY_ATTR {
        store_float(out, dst, element - begin, load_float(range.type, values, number));
    });
}

inline void decode_largest(const ChunkRange &range, const std::byte *payload, DataType out,
                           void *dst, bool streams) {
    if (range.count == 0) return;
    KeptValues kept(range, payload, range.begin);
    alignas(cache_line) std::byte tile[sparse_tile * sizeof(double)];
    for (uint64_t i = 0; i < range.count; i += sparse_tile) {
        const uint64_t begin = range.begin + i,
                       end = begin + std::min<uint64_t>(sparse_tile, range.count - i);
        std::byte *const to = static_cast<std::byte *>(dst) + i * type_bytes(out);
        spread_kept(kept, range, payload, begin, end, out, streams ? tile : to);
        if (streams) stream_bytes(to, tile, (end - begin) * type_bytes(out));
    }
    if (streams) hwy::FlushStream();
}

inline void decode_add_largest(const ChunkRange &range, RedOp op, const std::byte *payload,
                               void *accumulator) {
    if (range.count == 0) return;
    const DataType type = accumulator_of(range.type);
    KeptValues kept(range, payload, range.begin);
    alignas(cache_line) std::byte tile[sparse_tile * sizeof(double)];
    for (uint64_t i = 0; i < range.count; i += sparse_tile) {
        const uint64_t begin = range.begin + i,
                       end = begin + std::min<uint64_t>(sparse_tile, range.count - i);
        spread_kept(kept, range, payload, begin, end, type, tile);
        reduce(op, type, static_cast<std::byte *>(accumulator) + i * type_bytes(type), type, tile,
               end - begin);
    }
}

} // namespace qccl::HWY_NAMESPACE

HWY_AFTER_NAMESPACE();
#endif
