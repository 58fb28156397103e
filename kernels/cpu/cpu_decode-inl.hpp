// Decodes `int`, `minmax`, the MX codecs, fp8 with a block, `nvfp4` and `norm` in fp32: computes
// values from codes and scales (cpu_scales-inl.hpp) and either stores them or adds them to the
// destination. Compiled once per target.

#if defined(QCCL_CPU_DECODE_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef QCCL_CPU_DECODE_INL
#undef QCCL_CPU_DECODE_INL
#else
#define QCCL_CPU_DECODE_INL
#endif

#include "kernels/cpu/cpu_group-inl.hpp"
#include "kernels/cpu/cpu_scales-inl.hpp"

#include <utility>

HWY_BEFORE_NAMESPACE();

namespace qccl::HWY_NAMESPACE {

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
        const bool is_signed =
            kind == CodecKind::integer || kind == CodecKind::norm || kind == CodecKind::tbq;
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
// With dither, `dither` has the draws of both.
template <Packing packing, class Scale, bool is_dithered>
HWY_INLINE void read_values(FloatVector first, FloatVector second,
                            [[maybe_unused]] FloatVector table, CodesAt<packing> codes,
                            [[maybe_unused]] const Dither &dither, FloatVector &low,
                            FloatVector &high) {
    const Ints di;
#if HWY_TARGET == HWY_AVX3
    if constexpr (packing == Packing::nibbles &&
                  !is_dithered) { // the permutation uses only four bits of an index
        const hn::Rebind<uint8_t, Ints> bytes;
        const IntVector pair = hn::PromoteTo(di, hn::LoadU(bytes, codes));
        low = FloatVector{_mm512_permutexvar_ps(pair.raw, table.raw)};
        high = FloatVector{_mm512_permutexvar_ps(hn::ShiftRight<4>(pair).raw, table.raw)};
        return;
    }
#endif
    IntVector low_code = hn::Zero(di), high_code = low_code;
    read_codes<packing, typename Scale::Byte>(codes, low_code, high_code);
    FloatVector low_number = hn::ConvertTo(Floats(), low_code),
                high_number = hn::ConvertTo(Floats(), high_code);
    if constexpr (is_dithered) {
        low_number = dither.subtract<typename Scale::Byte>(low_number, 0);
        high_number = dither.subtract<typename Scale::Byte>(high_number, group_values / 2);
    }
    low = Scale::value(low_number, first, second);
    high = Scale::value(high_number, first, second);
}

// Decodes groups of one block. Sums must be made canonical only if one of them is NaN. `suspects`
// gathers products of all stored values: it is NaN if one of them is, and otherwise only rarely.
// Two accumulators are used so that neither waits for the other.
template <Put put, Packing packing, class Scale, bool is_dithered>
HWY_INLINE void put_groups(const float *scale, CodesAt<packing> codes, Dither dither, size_t groups,
                           float *dst, FloatVector &suspects_a, FloatVector &suspects_b) {
    const Floats d;
    constexpr size_t half = group_values / 2, piece = group_piece(packing);
    const FloatVector first = hn::Set(d, scale[0]), second = hn::Set(d, scale[Scale::numbers - 1]);
    const FloatVector table = code_table<packing, Scale>(first, second);
    const auto put_pair = [&](size_t j, FloatVector &suspects) HWY_ATTR {
        const CodesAt<packing> from = codes + j;
        float *const to = dst + j;
        FloatVector y = hn::Zero(d), y_high = y;
        read_values<packing, Scale, is_dithered>(first, second, table, from, dither.from(j), y,
                                                 y_high);
        if constexpr (Scale::is_of_halves) {
            y = hn::Mul(y, first);
            y_high = hn::Mul(y_high, second);
        } else if constexpr (Scale::is_spread) {
            y = hn::Mul(y, hn::LoadU(d, scale + j));
            y_high = hn::Mul(y_high, hn::LoadU(d, scale + half + j));
        }
        if constexpr (is_dithered) { // +0 of -0
            y = hn::Add(y, hn::Zero(d));
            y_high = hn::Add(y_high, hn::Zero(d));
        }
        if constexpr (put == Put::add) {
            y = hn::Add(hn::LoadU(d, to), y);
            y_high = hn::Add(hn::LoadU(d, to + half), y_high);
            suspects = hn::MulAdd(y, y_high, suspects); // no stored byte depends on this
        }
        hn::StoreU(y, d, to);
        hn::StoreU(y_high, d, to + half);
    };
    for (size_t g = 0; g < groups; g++, codes += piece, dst += group_values) {
        for (size_t j = 0; j < half; j += 2 * lanes()) {
            put_pair(j, suspects_a);
            if (j + lanes() < half) put_pair(j + lanes(), suspects_b);
        }
        if constexpr (is_dithered) dither = dither.from(group_values);
    }
}

HWY_INLINE void make_canonical(float *values, size_t count) {
    for (size_t i = 0; i < count; i += lanes())
        hn::StoreU(canonical_vector(hn::LoadU(Floats(), values + i)), Floats(), values + i);
}

template <Put put, Packing packing, class Scale, bool is_dithered>
HWY_INLINE void put_tile(Scales<Scale> &scales, bool are_single, CodesAt<packing> codes,
                         const Dither &dither, size_t groups, float *dst, FloatVector &suspects_a,
                         FloatVector &suspects_b) {
    constexpr size_t piece = group_piece(packing);
    scales.begin_tile(groups);
    if (are_single) {
        for (size_t i = 0; i < groups; i++)
            put_groups<put, packing, Scale, is_dithered>(
                scales.next(), codes + i * piece, dither.from(i * group_values), 1,
                dst + i * group_values, suspects_a, suspects_b);
        return;
    }
    for (size_t i = 0, count = 0; i < groups; i += count) {
        const float *const scale = scales.next(groups - i, count);
        put_groups<put, packing, Scale, is_dithered>(
            scale, codes + i * piece, dither.from(i * group_values), count, dst + i * group_values,
            suspects_a, suspects_b);
    }
}

// Decodes `count` values of the range, from its group `first` on.
template <Put put, Packing packing, class Scale, bool is_dithered = false>
void put_packed(const ChunkRange &range, const Groups &groups, const std::byte *payload,
                size_t first, size_t count, float *dst) {
    const Floats d;
    CodeReader reader(range, groups, payload);
    Scales<Scale> scales(range, groups, payload, first);
    [[maybe_unused]] DrawsIf<is_dithered> draws(range, range.noise);
    const auto dither = [&](size_t g, size_t part) -> Dither {
        if constexpr (is_dithered)
            return {draws.tile(g, part), -static_cast<float>(1U << (range.codec->bits - 1))};
        return {};
    };
    const bool are_single = groups.per_block == 1;
    const size_t full_end = first + count / group_values, rest = count % group_values;
    constexpr size_t most = is_dithered ? tile_groups : put_groups_most;
    for (size_t g = first; g < full_end; g += most) {
        const size_t part = std::min(most, full_end - g);
        const CodesAt<packing> codes = reader.template tile<packing>(g, part);
        FloatVector suspects_a = hn::Zero(d), suspects_b = suspects_a;
        put_tile<put, packing, Scale, is_dithered>(scales, are_single, codes, dither(g, part), part,
                                                   dst, suspects_a, suspects_b);
        if constexpr (put == Put::add)
            if (!hn::AllFalse(d, hn::IsNaN(hn::Add(suspects_a, suspects_b))))
                make_canonical(dst, part * group_values);
        dst += part * group_values;
    }
    if (rest == 0) return;
    float values[group_values] = {};
    std::memcpy(values, dst, rest * sizeof(float));
    FloatVector suspects = hn::Zero(d);
    put_tile<put, packing, Scale, is_dithered>(scales, are_single,
                                               reader.template tile<packing>(full_end, 1),
                                               dither(full_end, 1), 1, values, suspects, suspects);
    make_canonical(values, group_values);
    std::memcpy(dst, values, rest * sizeof(float));
}

template <Put put, class Scale, bool is_dithered = false>
HWY_INLINE void put_scaled(const ChunkRange &range, const Groups &groups, const std::byte *payload,
                           size_t first, size_t count, float *dst) {
    if (range.codec->bits == 4)
        put_packed<put, Packing::nibbles, Scale, is_dithered>(range, groups, payload, first, count,
                                                              dst);
    else
        put_packed<put, Packing::bytes, Scale, is_dithered>(range, groups, payload, first, count,
                                                            dst);
}

template <Put put, class Scale, bool is_dithered>
HWY_INLINE void put_integers(const ChunkRange &range, const Groups &groups,
                             const std::byte *payload, size_t first, size_t count, float *dst) {
    if (range.codec->bits > 8)
        put_packed<put, Packing::split, Scale, is_dithered>(range, groups, payload, first, count,
                                                            dst);
    else
        put_scaled<put, Scale, is_dithered>(range, groups, payload, first, count, dst);
}

template <Put put, bool is_dithered>
HWY_INLINE void put_blocks(const ChunkRange &range, const Groups &groups, const std::byte *payload,
                           size_t first, size_t count, float *dst) {
    if (range.codec->row().kind == CodecKind::minmax)
        return put_scaled<put, MinmaxScale, is_dithered>(range, groups, payload, first, count, dst);
    switch (range.codec->bucket) {
    case 8:
        return put_integers<put, SmallScales<8>, is_dithered>(range, groups, payload, first, count,
                                                              dst);
    case 16:
        return put_integers<put, SmallScales<16>, is_dithered>(range, groups, payload, first, count,
                                                               dst);
    default:
        return put_integers<put, IntegerScale, is_dithered>(range, groups, payload, first, count,
                                                            dst);
    }
}

template <Put put>
HWY_INLINE void put_values(const ChunkRange &range, const Groups &groups, const std::byte *payload,
                           size_t first, size_t count, float *dst) {
    switch (range.codec->row().kind) {
    case CodecKind::integer:
    case CodecKind::minmax:
        if (range.codec->dithers())
            return put_blocks<put, true>(range, groups, payload, first, count, dst);
        return put_blocks<put, false>(range, groups, payload, first, count, dst);
    case CodecKind::mx:
        return with_element(*range.codec, [&]<class F>(F) {
            constexpr Packing packing = std::is_same_v<F, E2m1> ? Packing::nibbles : Packing::bytes;
            put_packed<put, packing, ElementScale<F>>(range, groups, payload, first, count, dst);
        });
    case CodecKind::scaled:
        return with_fp8(range.codec->id, [&]<class F>(F) {
            put_packed<put, Packing::bytes, Fp8Element<F>>(range, groups, payload, first, count,
                                                           dst);
        });
    case CodecKind::nvfp4:
        return put_packed<put, Packing::nibbles, Nvfp4Scales>(range, groups, payload, first, count,
                                                              dst);
    case CodecKind::onebit: return put_onebit<put>(range, groups, payload, first, count, dst);
    case CodecKind::norm:
        if (range.codec->levels == Levels::uniform)
            return put_scaled<put, UniformNorm>(range, groups, payload, first, count, dst);
        return put_scaled<put, PowerNorm>(range, groups, payload, first, count, dst);
    case CodecKind::tbq:
        return put_scaled<put, ThresholdScale>(range, groups, payload, first, count, dst);
    case CodecKind::terngrad:
        return put_ternary<put>(range, payload, first * group_values, count, dst);
    case CodecKind::plain: // these have no codes
    case CodecKind::cast:
    case CodecKind::topk:
    case CodecKind::grid:
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
