// Decodes `int`, `minmax`, the MX codecs, `nvfp4` and `norm` in fp32. The scales say how the
// numbers of a block turn a code into a value, and hold the numbers of a tile's blocks. The
// decoders compute values from codes and scales and either store them or add them to the
// destination. Compiled once per target.

#if defined(QCCL_CPU_DECODE_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef QCCL_CPU_DECODE_INL
#undef QCCL_CPU_DECODE_INL
#else
#define QCCL_CPU_DECODE_INL
#endif

#include "kernels/codec/norm_block.hpp"
#include "kernels/codec/small_float_block.hpp"
#include "kernels/cpu/cpu_group-inl.hpp"
#include "kernels/cpu/cpu_summed-inl.hpp"

#include <utility>

HWY_BEFORE_NAMESPACE();

namespace qccl::HWY_NAMESPACE {

// ---- Scales

// Groups decoded between two NaN checks; their values stay in the first-level cache.
inline constexpr size_t put_groups_most = 64;

// y = code * scale. A block has one number.
struct IntegerScale {
    static constexpr bool is_of_halves = false; // whether the second number scales values 16 to 31
    static constexpr bool is_spread = false;    // whether there is a number for each value
    using Byte = int8_t;
    static constexpr size_t numbers = 1;
    static constexpr size_t wire_bytes = sizeof(uint16_t);
    static HWY_INLINE void load(const Codec &, const std::byte *wire, size_t blocks, float *dst) {
        for (size_t i = 0; i < blocks; i++)
            dst[i] = std::bit_cast<float>(uint32_t{load_bits<uint16_t>(wire, i)} << 16);
    }
    static HWY_INLINE FloatVector value(FloatVector code, FloatVector scale, FloatVector) {
        return hn::Mul(code, scale);
    }
};
// y = minimum + unit * code.
struct MinmaxScale {
    static constexpr bool is_of_halves = false, is_spread = false;
    using Byte = uint8_t;
    static constexpr size_t numbers = 2;
    static constexpr size_t wire_bytes = 2 * sizeof(float);
    static HWY_INLINE void load(const Codec &, const std::byte *wire, size_t blocks, float *dst) {
        std::memcpy(dst, wire, blocks * wire_bytes);
    }
    static HWY_INLINE FloatVector value(FloatVector code, FloatVector minimum, FloatVector unit) {
        return hn::Add(minimum, hn::Mul(unit, code));
    }
};

// y = code * scale, where the code is a small float and the scale is a power of two.
template <class F> struct ElementScale {
    static constexpr bool is_of_halves = false, is_spread = false;
    using Byte = uint8_t;
    static constexpr size_t numbers = 1;
    static constexpr size_t wire_bytes = sizeof(uint8_t);
    static HWY_INLINE void load(const Codec &, const std::byte *wire, size_t blocks, float *dst) {
        for (size_t i = 0; i < blocks; i++) dst[i] = mx_power(load_bits<uint8_t>(wire, i));
    }
    static HWY_INLINE FloatVector value(FloatVector code, FloatVector scale, FloatVector) {
        const WordVector pattern = hn::BitCast(Words(), hn::ConvertTo(Ints(), code));
        return hn::Mul(widen_vector<F>(pattern), scale);
    }
};

// y = code * factor, with the factor of the norm.
struct UniformNorm {
    static constexpr bool is_of_halves = false, is_spread = false;
    using Byte = int8_t;
    static constexpr size_t numbers = 1;
    static constexpr size_t wire_bytes = sizeof(float);
    static HWY_INLINE void load(const Codec &codec, const std::byte *wire, size_t blocks,
                                float *dst) {
        const NormGrid grid(codec);
        for (size_t i = 0; i < blocks; i++) dst[i] = grid.factor(load_bits<float>(wire, i));
    }
    static HWY_INLINE FloatVector value(FloatVector code, FloatVector factor, FloatVector) {
        return hn::Mul(code, factor);
    }
};
// y = power_of_code(code) * norm. The second number is what the exponent's field is more than the
// level.
struct PowerNorm {
    static constexpr bool is_of_halves = false, is_spread = false;
    using Byte = int8_t;
    static constexpr size_t numbers = 2;
    static constexpr size_t wire_bytes = sizeof(float);
    static HWY_INLINE void load(const Codec &codec, const std::byte *wire, size_t blocks,
                                float *dst) {
        for (size_t i = 0; i < blocks; i++) {
            dst[2 * i] = load_bits<float>(wire, i);
            dst[2 * i + 1] = static_cast<float>(127 - norm_levels(codec.bits));
        }
    }
    static HWY_INLINE FloatVector value(FloatVector code, FloatVector norm, FloatVector bias) {
        const Ints d;
        const Floats df;
        const FloatVector level = hn::Abs(code);
        const IntVector field = hn::ConvertTo(d, hn::Add(level, bias));
        const FloatVector power = hn::IfThenElseZero(hn::Gt(level, hn::Zero(df)),
                                                     hn::BitCast(df, hn::ShiftLeft<23>(field)));
        return hn::Mul(hn::CopySign(power, code), norm);
    }
};

// Several blocks of `int` share a group; `numbers` has a factor for each value.
template <size_t block> struct SmallScales {
    static constexpr bool is_of_halves = false, is_spread = true;
    using Byte = int8_t;
    static constexpr size_t numbers = group_values;
    static HWY_INLINE FloatVector value(FloatVector code, FloatVector, FloatVector) { return code; }
};

// A group has the scales of its two blocks. The decoder multiplies the results of `value` by them.
struct Nvfp4Scales {
    static constexpr bool is_of_halves = true, is_spread = false;
    using Byte = uint8_t;
    static constexpr size_t numbers = 2;
    static HWY_INLINE FloatVector value(FloatVector code, FloatVector, FloatVector) {
        return widen_vector<E2m1>(hn::BitCast(Words(), hn::ConvertTo(Ints(), code)));
    }
};

// Finds the block of each group and holds the scales of a tile's blocks as floats: filling a vector
// from memory costs no shuffle.
template <class Scale> class Scales {
public:
    Scales(const ChunkRange &range, const Groups &groups, const std::byte *payload,
           size_t first_group)
        : block_((groups.first + first_group) / groups.per_block),
          left_(groups.per_block - (groups.first + first_group) % groups.per_block),
          per_block_(groups.per_block), end_(range.layout->scale_count), codec_(*range.codec),
          wire_(payload + range.layout->scales) {}

    // Loads the scales of the next tile, which has `groups` groups. Must be called before the
    // tile's first group.
    HWY_INLINE void begin_tile(size_t groups) {
        const size_t count =
            std::min<uint64_t>(per_block_ == 1 ? groups : groups / 2 + 1, end_ - block_);
        Scale::load(codec_, wire_ + block_ * Scale::wire_bytes, count, numbers_);
        at_ = numbers_;
    }
    // Returns the scale of the next groups, all of one block, and sets `groups` to their number,
    // which is at most `most`.
    HWY_INLINE const float *next(size_t most, size_t &groups) {
        const float *const scale = at_;
        groups = std::min(most, left_);
        left_ -= groups;
        if (left_ == 0) {
            left_ = per_block_;
            block_++;
            at_ += Scale::numbers;
        }
        return scale;
    }
    // The same as the other next() for blocks of one group.
    HWY_INLINE const float *next() {
        block_++;
        return std::exchange(at_, at_ + Scale::numbers);
    }

private:
    uint64_t block_;
    size_t left_, per_block_; // groups
    uint64_t end_;
    const Codec &codec_;
    const std::byte *wire_;
    const float *at_ = numbers_;
    float numbers_[Scale::numbers * put_groups_most];
};

template <size_t block> class Scales<SmallScales<block>> {
public:
    Scales(const ChunkRange &range, const Groups &groups, const std::byte *payload,
           size_t first_group)
        : block_((groups.first + first_group) * per_group), end_(range.layout->scale_count),
          codec_(*range.codec), wire_(payload + range.layout->scales) {}

    HWY_INLINE void begin_tile(size_t groups) {
        const uint64_t count = std::min<uint64_t>(per_group * groups, end_ - block_);
        float scales[per_group * put_groups_most];
        IntegerScale::load(codec_, wire_ + block_ * IntegerScale::wire_bytes, count, scales);
        spread<block>(scales, count, numbers_);
        std::fill(numbers_ + count * block, // padding that belongs to no value
                  numbers_ + (count + per_group - 1) / per_group * group_values, 0.0F);
        at_ = numbers_;
    }
    HWY_INLINE const float *next() {
        block_ += per_group;
        return std::exchange(at_, at_ + group_values);
    }
    HWY_INLINE const float *next(size_t, size_t &groups) {
        groups = 1;
        return next();
    }

private:
    static constexpr size_t per_group = group_values / block;

    uint64_t block_, end_;
    const Codec &codec_;
    const std::byte *wire_;
    const float *at_ = numbers_;
    HWY_ALIGN float numbers_[group_values * put_groups_most];
};

// Holds the products of scales and bases, one pair per group.
template <> class Scales<Nvfp4Scales> {
public:
    Scales(const ChunkRange &range, const Groups &groups, const std::byte *payload,
           size_t first_group)
        : range_(range), payload_(payload), group_(groups.first + first_group),
          per_bucket_(groups.per_block) {}

    HWY_INLINE void begin_tile(size_t groups) {
        const PayloadLayout &layout = *range_.layout;
        const uint64_t first = 2 * group_,
                       count = std::min<uint64_t>(2 * groups, layout.scale_count - first);
        for (uint64_t i = 0; i < count; i++) {
            const auto scale = load_bits<uint8_t>(payload_ + layout.scales, first + i);
            const auto base =
                load_bits<float>(payload_ + layout.bases, (first + i) / 2 / per_bucket_);
            numbers_[i] = widen<E4m3>(scale) * base;
        }
        if (count % 2 != 0) numbers_[count] = 0; // padding that belongs to no value
        at_ = numbers_;
    }
    HWY_INLINE const float *next() {
        group_++;
        return std::exchange(at_, at_ + Nvfp4Scales::numbers);
    }
    HWY_INLINE const float *next(size_t, size_t &groups) {
        groups = 1;
        return next();
    }

private:
    const ChunkRange &range_;
    const std::byte *payload_;
    uint64_t group_;
    size_t per_bucket_; // groups
    const float *at_ = numbers_;
    float numbers_[Nvfp4Scales::numbers * put_groups_most];
};

// ---- Decoders

// How codes lie in the memory that they are read from: one byte per code, two codes per byte as in
// the 4-bit plane, or two places for codes of more than 8 bits.
enum class Packing : uint8_t { bytes, nibbles, split };

// Signed codes of more than 8 bits: their low bytes, and the bits above as signed bytes.
struct SplitCodes {
    const uint8_t *low, *high;

    HWY_INLINE SplitCodes operator+(size_t values) const { return {low + values, high + values}; }
    HWY_INLINE SplitCodes &operator+=(size_t values) { return *this = *this + values; }
};
template <Packing packing>
using CodesAt = std::conditional_t<packing == Packing::split, SplitCodes, const uint8_t *>;

// Returns the bytes between the codes of one group and those of the next.
constexpr size_t group_piece(Packing packing) {
    return packing == Packing::nibbles ? group_values / 2 : group_values;
}

// Reads lanes() bytes as 32-bit integers.
template <class Byte> HWY_INLINE IntVector read_bytes(const uint8_t *from) {
    const hn::Rebind<Byte, Ints> bytes;
    return hn::PromoteTo(Ints(), hn::LoadU(bytes, reinterpret_cast<const Byte *>(from)));
}

// Reads lanes() codes into `low` and the lanes() codes that lie 16 values further on into `high`.
template <Packing packing, class Byte>
HWY_INLINE void read_codes(CodesAt<packing> codes, IntVector &low, IntVector &high) {
    if constexpr (packing == Packing::bytes) {
        low = read_bytes<Byte>(codes);
        high = read_bytes<Byte>(codes + group_values / 2);
    } else if constexpr (packing == Packing::split) {
        const auto read = [](SplitCodes from) HWY_ATTR {
            return hn::Or(read_bytes<uint8_t>(from.low),
                          hn::ShiftLeft<8>(read_bytes<int8_t>(from.high)));
        };
        low = read(codes);
        high = read(codes + group_values / 2);
    } else {
        const Ints d;
        const hn::Rebind<uint8_t, Ints> bytes;
        const IntVector pair = hn::PromoteTo(d, hn::LoadU(bytes, codes));
        constexpr bool is_signed = std::is_signed_v<Byte>;
        low =
            is_signed ? hn::ShiftRight<28>(hn::ShiftLeft<28>(pair)) : hn::And(pair, hn::Set(d, 15));
        high = is_signed ? hn::ShiftRight<28>(hn::ShiftLeft<24>(pair)) : hn::ShiftRight<4>(pair);
    }
}

// Reads the codes of a range, one tile at a time. Codes of 8 and 4 bits are read in place, others
// are unpacked to bytes. The low bytes of wider codes are read in place.
class CodeReader {
public:
    CodeReader(const ChunkRange &range, const Groups &groups, const std::byte *payload)
        : range_(range), groups_(groups), payload_(payload) {}

    // Returns the codes of `count` groups from group g on. `count` is at most one tile. The next
    // call overwrites unpacked codes.
    template <Packing packing> HWY_INLINE CodesAt<packing> tile(size_t g, size_t count) {
        const auto *const bytes = reinterpret_cast<const uint8_t *>(payload_);
        const uint64_t first = groups_.first + g;
        const int bits = range_.codec->bits;
        const uint8_t *const in_place = bytes + range_.layout->plane8 + first * group_values;
        if constexpr (packing == Packing::nibbles) {
            return bytes + range_.layout->plane4 + first * (group_values / 2);
        } else if constexpr (packing == Packing::split) {
            unpack(bits - 8, first, count);
            return {in_place, buffer_};
        } else {
            if (bits == 8) return in_place;
            unpack(bits, first, count);
            return buffer_;
        }
    }

private:
    // Unpacks the planes below the 8-bit plane into buffer_.
    HWY_INLINE void unpack(int bits, uint64_t first, size_t count) {
        const CodecKind kind = range_.codec->row().kind;
        const bool is_signed = kind == CodecKind::integer || kind == CodecKind::norm;
        const auto sign = static_cast<uint8_t>(is_signed ? 1 << (bits - 1) : 0);
        unpack_groups(buffer_, count, bits, sign, *range_.layout, first, payload_);
    }

    const ChunkRange &range_;
    const Groups &groups_;
    const std::byte *payload_;
    HWY_ALIGN uint8_t buffer_[put_groups_most * group_values];
};

#if HWY_TARGET == HWY_AVX3
inline constexpr bool has_code_table = true;
#else
inline constexpr bool has_code_table = false;
#endif

// With 16 lanes, one register holds the values of all 16 codes of 4 bits.
template <Packing packing, class Scale>
HWY_INLINE FloatVector code_table(FloatVector first, FloatVector second) {
    if constexpr (!has_code_table || packing != Packing::nibbles) return first; // unused
    const Ints d;
    constexpr int sign = std::is_signed_v<typename Scale::Byte> ? 8 : 0;
    const IntVector codes = hn::Sub(hn::Xor(hn::Iota(d, 0), hn::Set(d, sign)), hn::Set(d, sign));
    return Scale::value(hn::ConvertTo(Floats(), codes), first, second);
}

// Computes the values of lanes() codes, and of the lanes() codes that lie 16 values further on.
template <Packing packing, class Scale>
HWY_INLINE void read_values(FloatVector first, FloatVector second,
                            [[maybe_unused]] FloatVector table, CodesAt<packing> codes,
                            FloatVector &low, FloatVector &high) {
    const Ints di;
#if HWY_TARGET == HWY_AVX3
    if constexpr (packing == Packing::nibbles) { // the permutation uses only four bits of an index
        const hn::Rebind<uint8_t, Ints> bytes;
        const IntVector pair = hn::PromoteTo(di, hn::LoadU(bytes, codes));
        low = FloatVector{_mm512_permutexvar_ps(pair.raw, table.raw)};
        high = FloatVector{_mm512_permutexvar_ps(hn::ShiftRight<4>(pair).raw, table.raw)};
        return;
    }
#endif
    IntVector low_code = hn::Zero(di), high_code = low_code;
    read_codes<packing, typename Scale::Byte>(codes, low_code, high_code);
    low = Scale::value(hn::ConvertTo(Floats(), low_code), first, second);
    high = Scale::value(hn::ConvertTo(Floats(), high_code), first, second);
}

// Decodes groups of one block. Sums must be made canonical only if one of them is NaN. `suspects`
// gathers products of all stored values: it is NaN if one of them is, and otherwise only rarely.
// Two accumulators are used so that neither waits for the other.
template <Put put, Packing packing, class Scale>
HWY_INLINE void put_groups(const float *scale, CodesAt<packing> codes, size_t groups, float *dst,
                           FloatVector &suspects_a, FloatVector &suspects_b) {
    const Floats d;
    constexpr size_t half = group_values / 2, piece = group_piece(packing);
    const FloatVector first = hn::Set(d, scale[0]), second = hn::Set(d, scale[Scale::numbers - 1]);
    const FloatVector table = code_table<packing, Scale>(first, second);
    const auto put_pair = [&](size_t j, FloatVector &suspects) HWY_ATTR {
        const CodesAt<packing> from = codes + j;
        float *const to = dst + j;
        FloatVector y = hn::Zero(d), y_high = y;
        read_values<packing, Scale>(first, second, table, from, y, y_high);
        if constexpr (Scale::is_of_halves) {
            y = hn::Mul(y, first);
            y_high = hn::Mul(y_high, second);
        } else if constexpr (Scale::is_spread) {
            y = hn::Mul(y, hn::LoadU(d, scale + j));
            y_high = hn::Mul(y_high, hn::LoadU(d, scale + half + j));
        }
        if constexpr (put == Put::add) {
            y = hn::Add(hn::LoadU(d, to), y);
            y_high = hn::Add(hn::LoadU(d, to + half), y_high);
            suspects = hn::MulAdd(y, y_high, suspects); // no stored byte depends on this
        }
        hn::StoreU(y, d, to);
        hn::StoreU(y_high, d, to + half);
    };
    for (size_t g = 0; g < groups; g++, codes += piece, dst += group_values)
        for (size_t j = 0; j < half; j += 2 * lanes()) {
            put_pair(j, suspects_a);
            if (j + lanes() < half) put_pair(j + lanes(), suspects_b);
        }
}

HWY_INLINE void make_canonical(float *values, size_t count) {
    for (size_t i = 0; i < count; i += lanes())
        hn::StoreU(canonical_vector(hn::LoadU(Floats(), values + i)), Floats(), values + i);
}

template <Put put, Packing packing, class Scale>
HWY_INLINE void put_tile(Scales<Scale> &scales, bool are_single, CodesAt<packing> codes,
                         size_t groups, float *dst, FloatVector &suspects_a,
                         FloatVector &suspects_b) {
    constexpr size_t piece = group_piece(packing);
    scales.begin_tile(groups);
    if (are_single) {
        for (size_t i = 0; i < groups; i++)
            put_groups<put, packing, Scale>(scales.next(), codes + i * piece, 1,
                                            dst + i * group_values, suspects_a, suspects_b);
        return;
    }
    for (size_t i = 0, count = 0; i < groups; i += count) {
        const float *const scale = scales.next(groups - i, count);
        put_groups<put, packing, Scale>(scale, codes + i * piece, count, dst + i * group_values,
                                        suspects_a, suspects_b);
    }
}

// Decodes `count` values of the range, from its group `first` on.
template <Put put, Packing packing, class Scale>
void put_packed(const ChunkRange &range, const Groups &groups, const std::byte *payload,
                size_t first, size_t count, float *dst) {
    const Floats d;
    CodeReader reader(range, groups, payload);
    Scales<Scale> scales(range, groups, payload, first);
    const bool are_single = groups.per_block == 1;
    const size_t full_end = first + count / group_values, rest = count % group_values;
    for (size_t g = first; g < full_end; g += put_groups_most) {
        const size_t part = std::min(put_groups_most, full_end - g);
        const CodesAt<packing> codes = reader.template tile<packing>(g, part);
        FloatVector suspects_a = hn::Zero(d), suspects_b = suspects_a;
        put_tile<put, packing>(scales, are_single, codes, part, dst, suspects_a, suspects_b);
        if constexpr (put == Put::add)
            if (!hn::AllFalse(d, hn::IsNaN(hn::Add(suspects_a, suspects_b))))
                make_canonical(dst, part * group_values);
        dst += part * group_values;
    }
    if (rest == 0) return;
    float values[group_values] = {};
    std::memcpy(values, dst, rest * sizeof(float));
    FloatVector suspects = hn::Zero(d);
    put_tile<put, packing>(scales, are_single, reader.template tile<packing>(full_end, 1), 1,
                           values, suspects, suspects);
    make_canonical(values, group_values);
    std::memcpy(dst, values, rest * sizeof(float));
}

template <Put put, class Scale>
HWY_INLINE void put_scaled(const ChunkRange &range, const Groups &groups, const std::byte *payload,
                           size_t first, size_t count, float *dst) {
    if (range.codec->bits == 4)
        put_packed<put, Packing::nibbles, Scale>(range, groups, payload, first, count, dst);
    else
        put_packed<put, Packing::bytes, Scale>(range, groups, payload, first, count, dst);
}

template <Put put, class Scale>
HWY_INLINE void put_integers(const ChunkRange &range, const Groups &groups,
                             const std::byte *payload, size_t first, size_t count, float *dst) {
    if (range.codec->bits > 8)
        put_packed<put, Packing::split, Scale>(range, groups, payload, first, count, dst);
    else
        put_scaled<put, Scale>(range, groups, payload, first, count, dst);
}

template <Put put>
HWY_INLINE void put_values(const ChunkRange &range, const Groups &groups, const std::byte *payload,
                           size_t first, size_t count, float *dst) {
    switch (range.codec->row().kind) {
    case CodecKind::integer:
        if (range.codec->bucket == 8)
            return put_integers<put, SmallScales<8>>(range, groups, payload, first, count, dst);
        if (range.codec->bucket == 16)
            return put_integers<put, SmallScales<16>>(range, groups, payload, first, count, dst);
        return put_integers<put, IntegerScale>(range, groups, payload, first, count, dst);
    case CodecKind::mx:
        return with_element(*range.codec, [&]<class F>(F) {
            constexpr Packing packing = std::is_same_v<F, E2m1> ? Packing::nibbles : Packing::bytes;
            put_packed<put, packing, ElementScale<F>>(range, groups, payload, first, count, dst);
        });
    case CodecKind::nvfp4:
        return put_packed<put, Packing::nibbles, Nvfp4Scales>(range, groups, payload, first, count,
                                                              dst);
    case CodecKind::minmax:
        return put_scaled<put, MinmaxScale>(range, groups, payload, first, count, dst);
    case CodecKind::onebit: return put_onebit<put>(range, groups, payload, first, count, dst);
    case CodecKind::norm:
        if (range.codec->levels == Levels::uniform)
            return put_scaled<put, UniformNorm>(range, groups, payload, first, count, dst);
        return put_scaled<put, PowerNorm>(range, groups, payload, first, count, dst);
    case CodecKind::terngrad:
        return put_ternary<put>(range, payload, first * group_values, count, dst);
    case CodecKind::plain: // these have no codes
    case CodecKind::cast:
    case CodecKind::topk:
    case CodecKind::dummy: return;
    }
}

inline void decode_codes(const ChunkRange &range, const Groups &groups, const std::byte *payload,
                         DataType out, void *dst, bool streams) {
    if (out == DataType::float32 && !streams)
        return put_values<Put::store>(range, groups, payload, 0, groups.values,
                                      static_cast<float *>(dst));
    constexpr size_t tile = 2 * tile_values;
    alignas(cache_line) float values[tile];
    for (size_t i = 0; i < groups.values; i += tile) {
        const size_t part = std::min(tile, groups.values - i);
        put_values<Put::store>(range, groups, payload, i / group_values, part, values);
        copy(out, static_cast<std::byte *>(dst) + i * type_bytes(out), DataType::float32, values,
             part, streams);
    }
}

inline void decode_add_codes(const ChunkRange &range, RedOp op, const Groups &groups,
                             const std::byte *payload, void *accumulator) {
    const DataType type = accumulator_of(range.type);
    if (type == DataType::float32 && (op == RedOp::sum || op == RedOp::avg))
        return put_values<Put::add>(range, groups, payload, 0, groups.values,
                                    static_cast<float *>(accumulator));
    alignas(cache_line) std::byte values[tile_values * sizeof(double)]; // values of `type`
    for (size_t i = 0; i < groups.values; i += tile_values) {
        ChunkRange part = range;
        part.begin += i;
        part.count = std::min(tile_values, groups.values - i);
        decode_codes(part, groups_of(part), payload, type, values, false);
        reduce(op, type, static_cast<std::byte *>(accumulator) + i * type_bytes(type), type, values,
               part.count);
    }
}

} // namespace qccl::HWY_NAMESPACE

HWY_AFTER_NAMESPACE();
#endif
