// Decoding `int` and `minmax` in fp32: codes and scales to values that are stored, or added at
// once. Included once per target.
#if defined(QCCL_CPU_DECODE_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef QCCL_CPU_DECODE_INL
#undef QCCL_CPU_DECODE_INL
#else
#define QCCL_CPU_DECODE_INL
#endif

#include "kernels/cpu_group-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace qccl::HWY_NAMESPACE {

// y = code * scale.
struct IntegerScale {
    using Byte = int8_t;
    static constexpr size_t wire_bytes = sizeof(uint16_t);
    float scale = 0;

    HWY_INLINE void load(const std::byte *wire) {
        scale = std::bit_cast<float>(uint32_t{load_bits<uint16_t>(wire, 0)} << 16);
    }
    HWY_INLINE FloatVector value(FloatVector code) const {
        return hn::Mul(code, hn::Set(Floats(), scale));
    }
};
// y = minimum + unit * code.
struct MinmaxScale {
    using Byte = uint8_t;
    static constexpr size_t wire_bytes = 2 * sizeof(float);
    float minimum = 0, unit = 0;

    HWY_INLINE void load(const std::byte *wire) {
        minimum = load_bits<float>(wire, 0);
        unit = load_bits<float>(wire, 1);
    }
    HWY_INLINE FloatVector value(FloatVector code) const {
        const Floats d;
        return hn::Add(hn::Set(d, minimum), hn::Mul(hn::Set(d, unit), code));
    }
};

// How codes lie where put_group reads them: in bytes, or two to a byte as in the plane of 4 bits.
enum class Packing : uint8_t { bytes, nibbles };

// Codes j to j + lanes() - 1 of a group, and those of 16 values further on.
template <Packing packing, class Byte>
HWY_INLINE void read_codes(const uint8_t *piece, size_t j, IntVector &low, IntVector &high) {
    const Ints d;
    if constexpr (packing == Packing::bytes) {
        const hn::Rebind<Byte, Ints> bytes;
        const auto *const from = reinterpret_cast<const Byte *>(piece) + j;
        low = hn::PromoteTo(d, hn::LoadU(bytes, from));
        high = hn::PromoteTo(d, hn::LoadU(bytes, from + group_values / 2));
    } else {
        const hn::Rebind<uint8_t, Ints> bytes;
        const IntVector pair = hn::PromoteTo(d, hn::LoadU(bytes, piece + j));
        constexpr bool is_signed = std::is_signed_v<Byte>;
        low =
            is_signed ? hn::ShiftRight<28>(hn::ShiftLeft<28>(pair)) : hn::And(pair, hn::Set(d, 15));
        high = is_signed ? hn::ShiftRight<28>(hn::ShiftLeft<24>(pair)) : hn::ShiftRight<4>(pair);
    }
}

// The codes of a range, a tile at a time: in place with 8 and 4 bits, unpacked to bytes otherwise.
class CodeReader {
public:
    CodeReader(const ChunkRange &range, const Groups &groups, const std::byte *payload)
        : range_(range), groups_(groups), payload_(payload) {}

    // The codes of `count` groups from g on, at most a tile.
    template <Packing packing> HWY_INLINE const uint8_t *tile(size_t g, size_t count) {
        const auto *const bytes = reinterpret_cast<const uint8_t *>(payload_);
        const uint64_t first = groups_.first + g;
        const int bits = range_.codec->bits;
        if constexpr (packing == Packing::nibbles)
            return bytes + range_.layout->plane4 + first * (group_values / 2);
        if (bits == 8) return bytes + range_.layout->plane8 + first * group_values;
        const bool is_signed = range_.codec->id == CodecId::integer;
        const auto sign = static_cast<uint8_t>(is_signed ? 1 << (bits - 1) : 0);
        unpack_groups(buffer_, count, bits, sign, *range_.layout, first, payload_);
        return buffer_;
    }

private:
    const ChunkRange &range_;
    const Groups &groups_;
    const std::byte *payload_;
    HWY_ALIGN uint8_t buffer_[tile_values];
};

// What becomes of the values at `dst`.
enum class Put : uint8_t { store, add };

// The values of a pair of vectors of codes, 16 apart in a group.
template <Packing packing, class Scale>
HWY_INLINE void read_values(const Scale &scale, const uint8_t *piece, size_t j, FloatVector &low,
                            FloatVector &high) {
    const Floats d;
    const Ints di;
#if HWY_TARGET == HWY_AVX3
    // With 16 lanes a register holds what each of the 16 codes stands for; the permutation reads
    // the low four bits of an index alone.
    if constexpr (packing == Packing::nibbles) {
        alignas(64) static constexpr float signed_codes[16] = {0,  1,  2,  3,  4,  5,  6,  7,
                                                               -8, -7, -6, -5, -4, -3, -2, -1};
        alignas(64) static constexpr float codes[16] = {0, 1, 2,  3,  4,  5,  6,  7,
                                                        8, 9, 10, 11, 12, 13, 14, 15};
        constexpr bool is_signed = std::is_signed_v<typename Scale::Byte>;
        const FloatVector table = scale.value(hn::Load(d, is_signed ? signed_codes : codes));
        const hn::Rebind<uint8_t, Ints> bytes;
        const IntVector pair = hn::PromoteTo(di, hn::LoadU(bytes, piece + j));
        low = FloatVector{_mm512_permutexvar_ps(pair.raw, table.raw)};
        high = FloatVector{_mm512_permutexvar_ps(hn::ShiftRight<4>(pair).raw, table.raw)};
        return;
    }
#endif
    IntVector low_code = hn::Zero(di), high_code = low_code;
    read_codes<packing, typename Scale::Byte>(piece, j, low_code, high_code);
    low = scale.value(hn::ConvertTo(d, low_code));
    high = scale.value(hn::ConvertTo(d, high_code));
}

// Sums are made canonical only where there was a NaN among them: `suspects`, which gathers products
// of all that was stored, is NaN then, and rarely otherwise. Two of them, so that one need not wait
// for the other.
template <Put put, Packing packing, class Scale>
HWY_INLINE void put_group(const Scale &scale, const uint8_t *piece, float *dst,
                          FloatVector &suspects_a, FloatVector &suspects_b) {
    const Floats d;
    const auto put_pair = [&](size_t j, FloatVector &suspects) HWY_ATTR {
        float *const to = dst + j, *const to_high = to + group_values / 2;
        FloatVector y = hn::Zero(d), y_high = y;
        read_values<packing>(scale, piece, j, y, y_high);
        if constexpr (put == Put::add) {
            y = hn::Add(hn::LoadU(d, to), y);
            y_high = hn::Add(hn::LoadU(d, to_high), y_high);
            suspects = hn::MulAdd(y, y_high, suspects); // defines no bytes
        }
        hn::StoreU(y, d, to);
        hn::StoreU(y_high, d, to_high);
    };
    constexpr size_t half = group_values / 2;
    for (size_t j = 0; j < half; j += 2 * lanes()) {
        put_pair(j, suspects_a);
        if (j + lanes() < half) put_pair(j + lanes(), suspects_b);
    }
}

HWY_INLINE void make_canonical(float *values, size_t count) {
    for (size_t i = 0; i < count; i += lanes())
        hn::StoreU(canonical_vector(hn::LoadU(Floats(), values + i)), Floats(), values + i);
}

// The scales of a range's blocks, one group after the other.
template <class Scale> class Scales {
public:
    Scales(const ChunkRange &range, const Groups &groups, const std::byte *payload,
           size_t first_group)
        : next_(payload + range.layout->scales +
                (groups.first + first_group) / groups.per_block * Scale::wire_bytes),
          left_(groups.per_block - (groups.first + first_group) % groups.per_block),
          per_block_(groups.per_block) {}

    HWY_INLINE Scale next() {
        Scale scale;
        scale.load(next_);
        if (--left_ == 0) {
            left_ = per_block_;
            next_ += Scale::wire_bytes;
        }
        return scale;
    }

private:
    const std::byte *next_;
    size_t left_, per_block_; // groups
};

// The values of the range's groups from `first` on, `count` values.
template <Put put, Packing packing, class Scale>
void put_packed(const ChunkRange &range, const Groups &groups, const std::byte *payload,
                size_t first, size_t count, float *dst) {
    const Floats d;
    constexpr size_t piece = packing == Packing::bytes ? group_values : group_values / 2;
    CodeReader reader(range, groups, payload);
    Scales<Scale> scales(range, groups, payload, first);
    const size_t full_end = first + count / group_values, rest = count % group_values;
    for (size_t g = first; g < full_end; g += tile_groups) {
        const size_t part = std::min(tile_groups, full_end - g), values = part * group_values;
        const uint8_t *const codes = reader.template tile<packing>(g, part);
        FloatVector suspects_a = hn::Zero(d), suspects_b = suspects_a;
        for (size_t i = 0; i < part; i++)
            put_group<put, packing>(scales.next(), codes + i * piece, dst + i * group_values,
                                    suspects_a, suspects_b);
        if constexpr (put == Put::add)
            if (!hn::AllFalse(d, hn::IsNaN(hn::Add(suspects_a, suspects_b))))
                make_canonical(dst, values);
        dst += values;
    }
    if (rest == 0) return;
    float values[group_values] = {};
    std::memcpy(values, dst, rest * sizeof(float));
    FloatVector suspects = hn::Zero(d);
    put_group<put, packing>(scales.next(), reader.template tile<packing>(full_end, 1), values,
                            suspects, suspects);
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

template <Put put>
HWY_INLINE void put_values(const ChunkRange &range, const Groups &groups, const std::byte *payload,
                           size_t first, size_t count, float *dst) {
    if (range.codec->id == CodecId::integer)
        put_scaled<put, IntegerScale>(range, groups, payload, first, count, dst);
    else
        put_scaled<put, MinmaxScale>(range, groups, payload, first, count, dst);
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
    alignas(cache_line) std::byte values[tile_values * sizeof(double)]; // of `type`
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
