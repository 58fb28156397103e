// Encodes and decodes the codecs whose scales come from sums over a bucket, `onebit` and
// `terngrad`. The order of the sums is that of summed_block.hpp: each of 32 lanes adds every 32nd
// value, and then the lanes add up pairwise. The lanes lie side by side in vectors, so that the
// vectors add in the order of the reference. Any thread may call; nothing blocks. Compiled once per
// target.

#if defined(QCCL_CPU_SUMMED_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef QCCL_CPU_SUMMED_INL
#undef QCCL_CPU_SUMMED_INL
#else
#define QCCL_CPU_SUMMED_INL
#endif

#include "base/sizes.hpp"
#include "kernels/codec/summed_block.hpp"
#include "kernels/cpu/cpu_quantise-inl.hpp"

#include <bit>

HWY_BEFORE_NAMESPACE();

namespace qccl::HWY_NAMESPACE {

// ---- Sums

static_assert(sum_lanes == group_values);

// Adds up the sums of the lanes as pinned_sum() does.
HWY_INLINE float sum_of_lanes(const float *sums) {
    const hn::CappedTag<float, 4> d;
    constexpr size_t step = 4;
    if (hn::Lanes(d) != step) return pinned_sum(sum_lanes, [&](uint64_t i) { return sums[i]; });
    const auto quarter = [&](size_t i) HWY_ATTR { // of 16 sums
        const float *const at = sums + i * step;
        return hn::Add(hn::LoadU(d, at), hn::LoadU(d, at + sum_lanes / 2));
    };
    HWY_ALIGN float left[step];
    hn::Store(hn::Add(hn::Add(quarter(0), quarter(2)), hn::Add(quarter(1), quarter(3))), d, left);
    return (left[0] + left[2]) + (left[1] + left[3]);
}

// Provides the values of a range as fp32, at most a tile at a time, with zeros up to the end of the
// last group.
class PaddedSource {
public:
    PaddedSource(DataType in, const void *src)
        : src_(static_cast<const std::byte *>(src)), in_(in) {}

    // Returns `count` values. The next call may overwrite them.
    HWY_INLINE const float *values(uint64_t from, size_t count) {
        if (in_ == DataType::float32 && count % group_values == 0)
            return reinterpret_cast<const float *>(src_) + from;
        if (from != from_ || count != count_) convert(from, count);
        return buffer_;
    }

private:
    HWY_NOINLINE void convert(uint64_t from, size_t count) {
        copy(DataType::float32, buffer_, in_, src_ + from * type_bytes(in_), count, false);
        std::fill(buffer_ + count, buffer_ + round_up(count, group_values), 0.0F);
        from_ = from;
        count_ = count;
    }

    const std::byte *src_;
    DataType in_;
    uint64_t from_ = 0;
    size_t count_ = 0; // values in the buffer
    HWY_ALIGN float buffer_[tile_values];
};

// ---- onebit

// The sums of a bucket's values from zero up and of its negative values, by lanes, and the number
// of the latter.
struct SignSums {
    HWY_ALIGN float usual[sum_lanes] = {};
    HWY_ALIGN float negative[sum_lanes] = {};
    uint64_t negatives = 0;
};

// Adds the values of groups to the sums, and writes their codes to the plane. A lane's sum is never
// -0, so a zero in the place of a value of the other code leaves it as it is.
HWY_INLINE void add_signs(const float *x, size_t groups, SignSums &sums, uint8_t *plane) {
    const Floats d;
    const size_t step = lanes();
    for (size_t j = 0; j < group_values; j += 2 * step) {
        FloatVector usual_a = hn::Load(d, sums.usual + j),
                    usual_b = hn::Load(d, sums.usual + j + step);
        FloatVector negative_a = hn::Load(d, sums.negative + j),
                    negative_b = hn::Load(d, sums.negative + j + step);
        for (size_t g = 0; g < groups; g++) {
            const FloatVector a = hn::LoadU(d, x + g * group_values + j),
                              b = hn::LoadU(d, x + g * group_values + j + step);
            const auto is_a = hn::Lt(a, hn::Zero(d)), is_b = hn::Lt(b, hn::Zero(d));
            usual_a = hn::Add(usual_a, hn::IfThenZeroElse(is_a, a));
            usual_b = hn::Add(usual_b, hn::IfThenZeroElse(is_b, b));
            negative_a = hn::Add(negative_a, hn::IfThenElseZero(is_a, a));
            negative_b = hn::Add(negative_b, hn::IfThenElseZero(is_b, b));
            const uint32_t codes = bits_of_mask(d, is_a) | bits_of_mask(d, is_b) << step;
            std::memcpy(plane + g * (group_values / 8) + j / 8, &codes, step / 4);
        }
        hn::Store(usual_a, d, sums.usual + j);
        hn::Store(usual_b, d, sums.usual + j + step);
        hn::Store(negative_a, d, sums.negative + j);
        hn::Store(negative_b, d, sums.negative + j + step);
    }
    for (size_t g = 0; g < groups; g++)
        sums.negatives += static_cast<uint64_t>(std::popcount(load_bits<uint32_t>(plane, g)));
}

// Encodes bucket by bucket. Both sums are finite exactly if all values are and no sum overflows;
// the reference encodes other buckets.
inline void encode_signs(const ChunkRange &range, const Noise &noise, DataType in, const void *src,
                         std::byte *payload) {
    const Groups groups = groups_of(range);
    PaddedSource source(in, src);
    auto *const plane =
        reinterpret_cast<uint8_t *>(payload) + range.layout->plane1 + groups.first * 4;
    std::byte *const wire = payload + range.layout->scales;
    const size_t buckets = groups.blocks();
    for (size_t i = 0; i < buckets; i++) {
        const size_t begin = i * groups.per_block,
                     end = std::min(groups.count, begin + groups.per_block);
        const size_t values = std::min(groups.values, end * group_values) - begin * group_values;
        SignSums sums;
        for (size_t g = begin; g < end; g += tile_groups) {
            const size_t count = std::min(tile_groups, end - g), from = g * group_values;
            const float *const x =
                source.values(from, std::min(count * group_values, groups.values - from));
            add_signs(x, count, sums, plane + g * 4);
        }
        const float usual = sum_of_lanes(sums.usual), negative = sum_of_lanes(sums.negative);
        if (!is_finite(usual) || !is_finite(negative)) {
            encode_by_reference(range, noise, in, src, payload, groups, {i, 1, begin, end}, 1);
            continue;
        }
        const uint64_t bucket = groups.first_block() + i;
        store_bits(wire, 2 * bucket, onebit_mean(usual, values - sums.negatives, 1));
        store_bits(wire, 2 * bucket + 1, onebit_mean(negative, sums.negatives, 1));
    }
}

// Decodes a group; `codes` has a bit for each value. The means are canonical.
template <Put put>
HWY_INLINE void put_signs(uint32_t codes, FloatVector mean, FloatVector negative_mean, float *dst) {
    const Floats d;
    const Words dw;
    const WordVector bit = hn::Shl(hn::Set(dw, 1U), hn::Iota(dw, 0U));
    for (size_t j = 0; j < group_values; j += lanes()) {
        const auto is_negative = hn::TestBit(hn::Set(dw, codes >> j), bit);
        FloatVector y = hn::IfThenElse(hn::RebindMask(d, is_negative), negative_mean, mean);
        if constexpr (put == Put::add) y = canonical_vector(hn::Add(hn::LoadU(d, dst + j), y));
        hn::StoreU(y, d, dst + j);
    }
}

// Decodes `count` values of the range, from its group `first` on.
template <Put put>
void put_onebit(const ChunkRange &range, const Groups &groups, const std::byte *payload,
                size_t first, size_t count, float *dst) {
    const Floats d;
    const std::byte *const plane = payload + range.layout->plane1, *const wire =
                                                                       payload +
                                                                       range.layout->scales;
    const uint64_t from = groups.first + first,
                   end = from + (count + group_values - 1) / group_values;
    for (uint64_t g = from; g < end;) {
        const uint64_t bucket = g / groups.per_block,
                       stop = std::min(end, (bucket + 1) * groups.per_block);
        const FloatVector mean = hn::Set(d, canonical(load_bits<float>(wire, 2 * bucket))),
                          negative_mean =
                              hn::Set(d, canonical(load_bits<float>(wire, 2 * bucket + 1)));
        for (; g < stop; g++, dst += group_values) {
            const auto codes = load_bits<uint32_t>(plane, g);
            const size_t left = count - (g - from) * group_values;
            if (left >= group_values) {
                put_signs<put>(codes, mean, negative_mean, dst);
                continue;
            }
            float values[group_values] = {};
            std::memcpy(values, dst, left * sizeof(float));
            put_signs<put>(codes, mean, negative_mean, values);
            std::memcpy(dst, values, left * sizeof(float));
        }
    }
}

// ---- terngrad: scales

// Returns the bit pattern of the largest magnitude of a tile's groups, or `before` if that is
// larger.
HWY_INLINE uint32_t largest_of_groups(const float *x, size_t groups, uint32_t before) {
    const Ints d;
    const IntVector mask = hn::Set(d, INT32_MAX);
    IntVector a = hn::Set(d, static_cast<int32_t>(before)), b = a;
    for (size_t i = 0; i < groups * group_values; i += 2 * lanes()) {
        a = hn::Max(a, hn::And(hn::BitCast(d, hn::LoadU(Floats(), x + i)), mask));
        b = hn::Max(b, hn::And(hn::BitCast(d, hn::LoadU(Floats(), x + i + lanes())), mask));
    }
    return static_cast<uint32_t>(hn::GetLane(hn::MaxOfLanes(d, hn::Max(a, b))));
}

// Adds the squares of lifted values to the sums of the lanes.
HWY_INLINE void add_squares(const float *x, size_t groups, float lift, float *sums) {
    const Floats d;
    const FloatVector factor = hn::Set(d, lift);
    const size_t step = lanes();
    for (size_t j = 0; j < group_values; j += 2 * step) {
        FloatVector sum_a = hn::Load(d, sums + j), sum_b = hn::Load(d, sums + j + step);
        for (size_t i = j; i < groups * group_values; i += group_values) {
            const FloatVector a = hn::Mul(hn::LoadU(d, x + i), factor),
                              b = hn::Mul(hn::LoadU(d, x + i + step), factor);
            sum_a = hn::Add(sum_a, hn::Mul(a, a));
            sum_b = hn::Add(sum_b, hn::Mul(b, b));
        }
        hn::Store(sum_a, d, sums + j);
        hn::Store(sum_b, d, sums + j + step);
    }
}

// Computes the scale of the bucket of `count` values from value `from` of the range on.
HWY_INLINE TerngradScale ternary_scale(PaddedSource &source, uint64_t from, uint64_t count,
                                       uint32_t clip) {
    const auto each_tile = [&](const auto &take) HWY_ATTR {
        for (uint64_t i = 0; i < count; i += tile_values) {
            const size_t part = std::min<uint64_t>(tile_values, count - i);
            take(source.values(from + i, part), (part + group_values - 1) / group_values);
        }
    };
    uint32_t largest = 0;
    each_tile([&](const float *x, size_t groups)
                  HWY_ATTR { largest = largest_of_groups(x, groups, largest); });
    if (largest >= float_infinity) return terngrad_scale(largest, 0, count, clip);
    HWY_ALIGN float sums[sum_lanes] = {};
    const float lift = terngrad_lift(largest);
    each_tile([&](const float *x, size_t groups) HWY_ATTR { add_squares(x, groups, lift, sums); });
    return terngrad_scale(largest, sum_of_lanes(sums), count, clip);
}

// ---- terngrad: digits

// Computes the digits of `count` values, at most a tile, one in a byte. Writes whole groups; the
// digits behind the last value are 0. The scale has an inverse.
class TernaryDigits {
public:
    TernaryDigits(const ChunkRange &range, const Noise &noise, DataType in, const void *src)
        : source(in, src), draws_(range, noise) {}

    HWY_INLINE void write(uint64_t from, size_t count, const TerngradScale &scale, uint8_t *dst) {
        const float *const x = source.values(from, count);
        const size_t padded = round_up(count, group_values);
        const uint16_t *const drawn = draws_.draws(from, padded);
        size_t i = 0;
        for (; i + groups_at_once * group_values <= padded; i += groups_at_once * group_values)
            write_groups<groups_at_once>(x + i, drawn + i, scale, dst + i);
        if (i < padded) write_groups<1>(x + i, drawn + i, scale, dst + i);
    }

    PaddedSource source;

private:
    // A value's digit is not 0 if the value in units of the scale and its draw make up 1.
    template <size_t groups>
    HWY_INLINE static void write_groups(const float *x, const uint16_t *drawn,
                                        const TerngradScale &scale, uint8_t *dst) {
        const Floats d;
        const Words dw;
        const FloatVector lift = hn::Set(d, scale.lift), inverse = hn::Set(d, scale.inverse);
        const auto vector = [&](size_t i) HWY_ATTR {
            const FloatVector v = hn::LoadU(d, x + i);
            const FloatVector units = hn::Mul(hn::Mul(hn::Abs(v), lift), inverse);
            const auto is_kept = hn::Ge(hn::Add(units, unit_noise(drawn + i)), hn::Set(d, 1.0F));
            const WordVector digit =
                hn::Add(hn::ShiftRight<31>(hn::BitCast(dw, v)), hn::Set(dw, 1U));
            return hn::BitCast(Ints(), hn::IfThenElseZero(hn::RebindMask(dw, is_kept), digit));
        };
        store_bytes<uint8_t, groups>(vector, dst);
    }

    Draws draws_;
};

using Bytes = hn::CappedTag<uint8_t, 32>;

// Packs the digits of five rows, which start `stride` bytes apart. Reads and writes whole vectors.
HWY_INLINE void pack_digits(const uint8_t *digits, size_t stride, size_t count, uint8_t *packed) {
    const Bytes d;
    for (size_t i = 0; i < count; i += hn::Lanes(d)) {
        auto sum = hn::LoadU(d, digits + i + 4 * stride);
        for (size_t row = 4; row-- > 0;)
            sum = hn::Add(hn::Add(hn::Add(sum, sum), sum), hn::LoadU(d, digits + i + row * stride));
        hn::StoreU(sum, d, packed + i);
    }
}

inline constexpr size_t ternary_rows = 5;
// Bytes of a bucket that are computed at a time.
inline constexpr size_t ternary_tile = tile_values;

// Encodes the bucket of `count` values from value `from` of the range on to `dst`. A small bucket's
// digits are computed in turn, those of a larger one in pieces of its rows.
HWY_INLINE void encode_ternary_bucket(TernaryDigits &digits, uint64_t from, uint64_t count,
                                      const TerngradScale &scale, uint8_t *dst) {
    constexpr size_t vector = 64; // at least a vector of bytes, and two groups
    const uint64_t bytes = ternary_bytes(count);
    if (scale.inverse == 0) {
        std::memset(dst, 0, bytes);
        return;
    }
    HWY_ALIGN uint8_t rows[ternary_rows * ternary_tile + vector];
    HWY_ALIGN uint8_t packed[ternary_tile + vector];
    if (bytes <= ternary_tile) {
        for (uint64_t i = 0; i < count; i += tile_values)
            digits.write(from + i, std::min<uint64_t>(tile_values, count - i), scale, rows + i);
        std::fill(rows + count, rows + std::max(ternary_rows * bytes, count), uint8_t{0});
        pack_digits(rows, bytes, bytes, packed);
        std::memcpy(dst, packed, bytes);
        return;
    }
    for (uint64_t byte = 0; byte < bytes; byte += ternary_tile) {
        const size_t part = std::min<uint64_t>(ternary_tile, bytes - byte);
        for (size_t row = 0; row < ternary_rows; row++) {
            const uint64_t start = std::min(row * bytes + byte, count);
            const size_t values = std::min<uint64_t>(part, count - start);
            uint8_t *const to = rows + row * ternary_tile;
            if (values != 0) digits.write(from + start, values, scale, to);
            std::fill(to + values, to + part, uint8_t{0});
        }
        pack_digits(rows, ternary_tile, part, packed);
        std::memcpy(dst + byte, packed, part);
    }
}

inline void encode_ternary(const ChunkRange &range, const Noise &noise, DataType in,
                           const void *src, std::byte *payload) {
    const uint64_t bucket = range.codec->bucket,
                   end = std::clamp(range.layout->coded, range.begin, range.begin + range.count);
    TernaryDigits digits(range, noise, in, src);
    for (uint64_t begin = range.begin; begin < end; begin += bucket) {
        const uint64_t from = begin - range.begin, count = std::min(bucket, end - begin),
                       number = begin / bucket;
        const TerngradScale scale = ternary_scale(digits.source, from, count, range.codec->clip);
        store_bits(payload + range.layout->scales, number, scale.wire);
        encode_ternary_bucket(digits, from, count, scale,
                              reinterpret_cast<uint8_t *>(payload) + range.layout->digits +
                                  number * ternary_bytes(bucket));
    }
}

// ---- terngrad: decode

// A quotient is the high half of a product: byte / 3^row for every row but the first.
inline constexpr uint16_t third = 21846, row_factors[ternary_rows] = {0, third, 7282, 2428, 810};
constexpr bool are_quotients_exact() {
    uint32_t power = 1;
    for (size_t row = 1; row < ternary_rows; row++) {
        power *= 3;
        for (uint32_t byte = 0; byte < 256; byte++)
            if (byte * row_factors[row] >> 16 != byte / power) return false;
    }
    return true;
}
static_assert(are_quotients_exact());

using Shorts = hn::CappedTag<uint16_t, 32>;

// Writes what the digits of a row stand for, 0, 1 or -1. Reads and writes whole vectors.
HWY_INLINE void unpack_row(const uint8_t *packed, size_t count, size_t row, int16_t *dst) {
    const Shorts d;
    const hn::RebindToSigned<Shorts> signs;
    const hn::Rebind<uint8_t, Shorts> bytes;
    const auto factor = hn::Set(d, row_factors[row]), of_third = hn::Set(d, third);
    const auto times_3 = [&](hn::Vec<Shorts> v) HWY_ATTR { return hn::Add(hn::Add(v, v), v); };
    for (size_t i = 0; i < count; i += hn::Lanes(d)) {
        auto rest = hn::PromoteTo(d, hn::LoadU(bytes, packed + i));
        if (row != 0) rest = hn::MulHigh(rest, factor);
        const auto digit = hn::Sub(rest, times_3(hn::MulHigh(rest, of_third)));
        const auto number = hn::Sub(digit, times_3(hn::ShiftRight<1>(digit)));
        hn::StoreU(hn::BitCast(signs, number), signs, dst + i);
    }
}

template <Put put>
HWY_INLINE void put_numbers(const int16_t *numbers, FloatVector scale, float *dst) {
    const Floats d;
    const hn::Rebind<int16_t, Floats> shorts;
    const IntVector number = hn::PromoteTo(Ints(), hn::LoadU(shorts, numbers));
    FloatVector y = canonical_vector(hn::Mul(hn::ConvertTo(d, number), scale));
    if constexpr (put == Put::add) y = canonical_vector(hn::Add(hn::LoadU(d, dst), y));
    hn::StoreU(y, d, dst);
}

// Decodes the values of a bucket from position `at` on, at most a tile. The bucket has `bytes`
// bytes at `packed`. The function loads whole vectors where none reaches behind `end`.
template <Put put>
HWY_INLINE void put_ternary_tile(const uint8_t *packed, const uint8_t *end, uint64_t bytes,
                                 uint64_t at, size_t count, float scale, float *dst) {
    constexpr size_t vector = 64;
    HWY_ALIGN int16_t numbers[tile_values + vector];
    for (size_t done = 0; done < count;) {
        const uint64_t row = (at + done) / bytes, byte = (at + done) % bytes;
        const size_t part = std::min<uint64_t>(count - done, bytes - byte);
        if (static_cast<size_t>(end - packed) >= byte + part + vector) {
            unpack_row(packed + byte, part, row, numbers + done);
        } else {
            uint8_t padded[tile_values + vector] = {};
            std::memcpy(padded, packed + byte, part);
            unpack_row(padded, part, row, numbers + done);
        }
        done += part;
    }
    const FloatVector factor = hn::Set(Floats(), scale);
    size_t i = 0;
    for (; i + lanes() <= count; i += lanes()) put_numbers<put>(numbers + i, factor, dst + i);
    if (i == count) return;
    float rest[max_lanes] = {};
    std::memcpy(rest, dst + i, (count - i) * sizeof(float));
    put_numbers<put>(numbers + i, factor, rest);
    std::memcpy(dst + i, rest, (count - i) * sizeof(float));
}

// Decodes `count` values of the range, from its value `first` on.
template <Put put>
void put_ternary(const ChunkRange &range, const std::byte *payload, uint64_t first, size_t count,
                 float *dst) {
    const PayloadLayout &layout = *range.layout;
    const auto *const digits = reinterpret_cast<const uint8_t *>(payload) + layout.digits,
                      *const end = reinterpret_cast<const uint8_t *>(payload) + layout.bytes;
    const uint64_t bucket = range.codec->bucket;
    for (uint64_t element = range.begin + first, left = count; left != 0;) {
        const uint64_t number = element / bucket, at = element % bucket,
                       values = std::min(bucket, layout.coded - number * bucket);
        const size_t part = std::min({left, values - at, uint64_t{tile_values}});
        put_ternary_tile<put>(digits + number * ternary_bytes(bucket), end, ternary_bytes(values),
                              at, part,
                              canonical(load_bits<float>(payload + layout.scales, number)), dst);
        element += part;
        left -= part;
        dst += part;
    }
}

} // namespace qccl::HWY_NAMESPACE

HWY_AFTER_NAMESPACE();
#endif
