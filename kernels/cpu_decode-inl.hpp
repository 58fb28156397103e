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

// What becomes of lanes() values at dst.
struct StoreValues {
    static HWY_INLINE void put(FloatVector y, float *dst) { hn::StoreU(y, Floats(), dst); }
};
struct AddValues {
    static HWY_INLINE void put(FloatVector y, float *dst) {
        const Floats d;
        hn::StoreU(combine_vectors<RedOp::sum>(hn::LoadU(d, dst), y), d, dst);
    }
};

// The codes of a range, byte by byte, in tiles.
class CodeReader {
public:
    CodeReader(const ChunkRange &range, const Groups &groups, const std::byte *payload)
        : range_(range), groups_(groups), payload_(payload) {}

    // The codes of `count` groups from g on, at most a tile.
    HWY_INLINE const uint8_t *tile(size_t g, size_t count) {
        const int bits = range_.codec->bits;
        if (bits == 8)
            return reinterpret_cast<const uint8_t *>(payload_) + range_.layout->plane8 +
                   (groups_.first + g) * group_values;
        const uint8_t sign = range_.codec->id == CodecId::integer
                                 ? static_cast<uint8_t>(1 << (bits - 1))
                                 : uint8_t{0};
        unpack_groups(tile_, count, bits, sign, *range_.layout, groups_.first + g, payload_);
        return tile_;
    }

private:
    const ChunkRange &range_;
    const Groups &groups_;
    const std::byte *payload_;
    HWY_ALIGN uint8_t tile_[tile_values];
};

template <class Scale, class Put>
HWY_INLINE void put_group(const Scale &scale, const uint8_t *codes, float *dst) {
    using Byte = typename Scale::Byte;
    const hn::Rebind<Byte, Ints> bytes;
    for (size_t i = 0; i < group_values; i += lanes()) {
        const auto code = hn::LoadU(bytes, reinterpret_cast<const Byte *>(codes) + i);
        const FloatVector number = hn::ConvertTo(Floats(), hn::PromoteTo(Ints(), code));
        Put::put(scale.value(number), dst + i);
    }
}

// The values of a range's coded elements [first, first + count), in units of groups but for the
// end.
template <class Scale, class Put>
void put_values(const ChunkRange &range, const Groups &groups, const std::byte *payload,
                size_t first, size_t count, float *dst) {
    CodeReader reader(range, groups, payload);
    Scale scale;
    const std::byte *const scales = payload + range.layout->scales;
    const size_t full_end = first + count / group_values;
    uint64_t block = (groups.first + first) / groups.per_block;
    size_t left =
        groups.per_block - (groups.first + first) % groups.per_block; // groups of this block
    scale.load(scales + block * Scale::wire_bytes);
    const auto step = [&]() HWY_ATTR {
        if (--left != 0) return;
        left = groups.per_block;
        block++;
    };
    for (size_t g = first; g < full_end; g += tile_groups) {
        const size_t part = std::min(tile_groups, full_end - g);
        const uint8_t *const codes = reader.tile(g, part);
        for (size_t i = 0; i < part; i++) {
            scale.load(scales + block * Scale::wire_bytes);
            put_group<Scale, Put>(scale, codes + i * group_values,
                                  dst + (g - first + i) * group_values);
            step();
        }
    }
    const size_t rest = count % group_values;
    if (rest == 0) return;
    float values[group_values] = {};
    float *const tail = dst + count - rest;
    std::memcpy(values, tail, rest * sizeof(float));
    scale.load(scales + block * Scale::wire_bytes);
    put_group<Scale, Put>(scale, reader.tile(full_end, 1), values);
    std::memcpy(tail, values, rest * sizeof(float));
}

template <class Put>
void put_values(const ChunkRange &range, const Groups &groups, const std::byte *payload,
                size_t first, size_t count, float *dst) {
    if (range.codec->id == CodecId::integer)
        put_values<IntegerScale, Put>(range, groups, payload, first, count, dst);
    else
        put_values<MinmaxScale, Put>(range, groups, payload, first, count, dst);
}

inline void decode_codes(const ChunkRange &range, const Groups &groups, const std::byte *payload,
                         DataType out, void *dst, bool streams) {
    if (out == DataType::float32 && !streams)
        return put_values<StoreValues>(range, groups, payload, 0, groups.values,
                                       static_cast<float *>(dst));
    constexpr size_t tile = 2 * tile_values;
    alignas(cache_line) float values[tile];
    for (size_t i = 0; i < groups.values; i += tile) {
        const size_t part = std::min(tile, groups.values - i);
        put_values<StoreValues>(range, groups, payload, i / group_values, part, values);
        copy(out, static_cast<std::byte *>(dst) + i * type_bytes(out), DataType::float32, values,
             part, streams);
    }
}

inline void decode_add_codes(const ChunkRange &range, RedOp op, const Groups &groups,
                             const std::byte *payload, void *accumulator) {
    const DataType type = accumulator_of(range.type);
    if (type == DataType::float32 && (op == RedOp::sum || op == RedOp::avg))
        return put_values<AddValues>(range, groups, payload, 0, groups.values,
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
