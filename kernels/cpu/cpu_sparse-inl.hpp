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
#include <limits>
#include <type_traits>

HWY_BEFORE_NAMESPACE();

namespace qccl::HWY_NAMESPACE {

// Values that are processed at a time; what is found among them stays in the first-level cache.
inline constexpr size_t sparse_tile = 1024;
static_assert(topk_page_values % sparse_tile == 0);

// ---- Values

// What magnitudes are compared as: integers with the bits of fp32 or fp64 magnitudes.
template <class T> using MagnitudeOf = std::conditional_t<sizeof(T) == 8, int64_t, int32_t>;
template <class T> using SparseValues = hn::CappedTag<T, max_lanes>;
template <class T> using Magnitudes = hn::RebindToSigned<SparseValues<T>>;
template <class T> using MagnitudeVector = hn::Vec<Magnitudes<T>>;
template <class T>
inline constexpr MagnitudeOf<T>
    infinite_magnitude = std::bit_cast<MagnitudeOf<T>>(std::numeric_limits<T>::infinity());
template <class T>
inline constexpr MagnitudeOf<T>
    nan_magnitude = static_cast<MagnitudeOf<T>>(sizeof(T) == 8 ? double_nan : float_nan);
template <class T>
inline constexpr MagnitudeOf<T> without_sign = std::numeric_limits<MagnitudeOf<T>>::max();

// The bits of a magnitude. They order infinities above all numbers, and NaN, which is canonical,
// above infinities.
template <class T> HWY_INLINE MagnitudeVector<T> magnitudes_at(const T *x) {
    const Magnitudes<T> d;
    const auto magnitude =
        hn::And(hn::BitCast(d, hn::LoadU(SparseValues<T>(), x)), hn::Set(d, without_sign<T>));
    const auto is_nan = hn::Gt(magnitude, hn::Set(d, infinite_magnitude<T>));
    return hn::IfThenElse(is_nan, hn::Set(d, nan_magnitude<T>), magnitude);
}
template <class T> HWY_INLINE MagnitudeOf<T> magnitude_bits(T x) {
    return std::bit_cast<MagnitudeOf<T>>(canonical(x)) & without_sign<T>;
}

// Returns a bit for each of the next 64 values: whether `test` holds for its magnitude.
inline constexpr size_t mask_values = 64;
template <class T, class Test> HWY_INLINE uint64_t mask_of(const T *x, const Test &test) {
    const Magnitudes<T> d;
    uint64_t bits = 0;
    for (size_t i = 0; i < mask_values; i += hn::Lanes(d))
        bits |= uint64_t{bits_of_mask(d, test(magnitudes_at(x + i)))} << i;
    return bits;
}
template <class Take> HWY_INLINE void each_bit(uint64_t bits, const Take &take) {
    for (; bits != 0; bits &= bits - 1) take(static_cast<size_t>(std::countr_zero(bits)));
}

// Provides the values of a chunk, rounded to the tensor's type, as T: fp64 for that type, and fp32
// for all others.
template <class T> class SparseSource {
public:
    SparseSource(DataType type, DataType in, const void *src)
        : src_(static_cast<const std::byte *>(src)), type_(type), in_(in) {}

    // Returns `count` values, at most a tile.
    HWY_INLINE const T *values(uint64_t from, size_t count) {
        if constexpr (sizeof(T) == sizeof(float))
            if (type_ != DataType::float32) return converted(from, count);
        return reinterpret_cast<const T *>(src_) + from;
    }
    MagnitudeOf<T> magnitude(uint64_t at) { return magnitude_bits(load_bits<T>(values(at, 1), 0)); }

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
    int64_t low, high;
};
template <class T> inline constexpr MagnitudeBounds widest_bounds{0, int64_t{nan_magnitude<T>} + 1};

// The encoder keeps the magnitudes above the threshold, and the first `ties` of those that equal
// it.
struct SparseThreshold {
    int64_t magnitude = 0;
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
    HWY_INLINE void count(int64_t magnitude) {
        above += magnitude >= bounds.high;
        lowest += magnitude == bounds.low;
        if (magnitude > bounds.low && magnitude < bounds.high) count_inside(magnitude);
    }
    HWY_INLINE void count_inside(int64_t magnitude) {
        inside[static_cast<uint64_t>(magnitude - bounds.low) >> shift]++;
    }
};

// Counts a tile's values. Those between the bounds are few if the bounds are good.
template <class T> HWY_INLINE void count_tile(const T *x, size_t count, MagnitudeBins &bins) {
    const Magnitudes<T> d;
    using Vector = MagnitudeVector<T>;
    const Vector low = hn::Set(d, static_cast<MagnitudeOf<T>>(bins.bounds.low)),
                 last = hn::Set(d, static_cast<MagnitudeOf<T>>(bins.bounds.high - 1));
    Vector above = hn::Zero(d), lowest = above; // count down
    const size_t full = count / mask_values * mask_values;
    for (size_t i = 0; i < full; i += mask_values) {
        const uint64_t inside = mask_of(x + i, [&](Vector magnitude) HWY_ATTR {
            const auto is_above = hn::Gt(magnitude, last);
            above = hn::Add(above, hn::VecFromMask(d, is_above));
            lowest = hn::Add(lowest, hn::VecFromMask(d, hn::Eq(magnitude, low)));
            return hn::AndNot(is_above, hn::Gt(magnitude, low));
        });
        each_bit(inside, [&](size_t j) HWY_ATTR {
            bins.count_inside(magnitude_bits(load_bits<T>(x, i + j)));
        });
    }
    const auto sum_of = [&](Vector counter) HWY_ATTR {
        return static_cast<uint64_t>(-int64_t{hn::GetLane(hn::SumOfLanes(d, counter))});
    };
    bins.above += sum_of(above);
    bins.lowest += sum_of(lowest);
    for (size_t i = full; i < count; i++) bins.count(magnitude_bits(load_bits<T>(x, i)));
}

// Proposes bounds for the `kept`th largest of `count` magnitudes: those of a sample, some of its
// standard deviations before and behind the expected place.
template <class T>
MagnitudeBounds sampled_bounds(SparseSource<T> &source, uint64_t count, uint64_t kept) {
    constexpr uint64_t most = 4096, least = 32, values_each = 128;
    const uint64_t number = std::min(count / values_each, most);
    MagnitudeBounds bounds = widest_bounds<T>;
    if (number < least) return bounds;
    MagnitudeOf<T> sample[most];
    for (uint64_t i = 0; i < number; i++) sample[i] = source.magnitude(i * (count / number));
    const double place =
        static_cast<double>(kept) / static_cast<double>(count) * static_cast<double>(number);
    const double margin = 4 * std::sqrt(place) + 4;
    MagnitudeOf<T> *end = sample + number;
    const auto at = [&](double where) {
        MagnitudeOf<T> *const found = sample + static_cast<uint64_t>(std::max(where, 0.0));
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
template <class T>
SparseThreshold find_threshold(SparseSource<T> &source, uint64_t count, uint64_t kept) {
    MagnitudeBounds known = widest_bounds<T>, tried = sampled_bounds(source, count, kept);
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
                if (bins.shift == 0) return {start, ties};
                const int64_t width = std::min(int64_t{1} << bins.shift, tried.high - start);
                known = {std::max(start, tried.low + 1), start + width};
            } else if (bins.lowest >= ties) {
                return {tried.low, ties};
            } else {
                known.high = tried.low;
            }
        }
        tried = known;
    }
}

// ---- Encode

// Writes the indices of the tile's values that are kept to `found`, and returns their number.
template <class T>
HWY_INLINE size_t find_kept(const T *x, size_t count, SparseThreshold &left, uint16_t *found) {
    const Magnitudes<T> d;
    using Vector = MagnitudeVector<T>;
    const Vector threshold = hn::Set(d, static_cast<MagnitudeOf<T>>(left.magnitude));
    size_t full = count / mask_values * mask_values, number = 0, equal = 0;
    if (left.ties != 0)
        for (size_t i = 0; i < full; i += mask_values)
            equal += static_cast<size_t>(std::popcount(mask_of(
                x + i, [&](Vector magnitude) HWY_ATTR { return hn::Eq(magnitude, threshold); })));
    if (equal > left.ties) full = 0; // some of the equal ones are kept
    const Vector below = hn::Sub(threshold, hn::Set(d, MagnitudeOf<T>{left.ties != 0 ? 1 : 0}));
    if (full != 0) left.ties -= equal;
    for (size_t i = 0; i < full; i += mask_values) {
        const uint64_t kept =
            mask_of(x + i, [&](Vector magnitude) HWY_ATTR { return hn::Gt(magnitude, below); });
        each_bit(kept, [&](size_t j) { found[number++] = static_cast<uint16_t>(i + j); });
    }
    for (size_t i = full; i < count; i++) {
        const int64_t magnitude = magnitude_bits(load_bits<T>(x, i));
        if (magnitude < left.magnitude || (magnitude == left.magnitude && left.ties == 0)) continue;
        left.ties -= magnitude == left.magnitude;
        found[number++] = static_cast<uint16_t>(i);
    }
    return number;
}

template <class T>
void encode_largest_as(const ChunkRange &range, DataType in, const void *src, std::byte *payload) {
    const PayloadLayout &layout = *range.layout;
    SparseSource<T> source(range.type, in, src);
    SparseThreshold left = find_threshold(source, range.count, layout.kept);
    uint16_t found[sparse_tile];
    T values[sparse_tile];
    uint64_t kept = 0, before = 0; // before the page
    for (uint64_t from = 0; from < range.count; from += sparse_tile) {
        const size_t count = std::min<uint64_t>(sparse_tile, range.count - from);
        const T *const x = source.values(from, count);
        const size_t number = find_kept(x, count, left, found);
        for (size_t i = 0; i < number; i++) {
            values[i] = canonical(load_bits<T>(x, found[i]));
            store_bits(payload + layout.indices, kept + i,
                       static_cast<uint16_t>(from % topk_page_values + found[i]));
        }
        copy(range.type, payload + layout.kept_values + kept * type_bytes(range.type),
             sizeof(T) == 8 ? DataType::float64 : DataType::float32, values, number, false);
        kept += number;
        if ((from + count) % topk_page_values != 0 && from + count < range.count) continue;
        store_bits(payload + layout.page_counts, from / topk_page_values,
                   static_cast<uint32_t>(kept - before));
        before = kept;
    }
}

// The range is the whole chunk.
inline void encode_largest(const ChunkRange &range, DataType in, const void *src,
                           std::byte *payload) {
    if (range.count == 0) return;
    if (range.type == DataType::float64)
        encode_largest_as<double>(range, in, src, payload);
    else
        encode_largest_as<float>(range, in, src, payload);
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
