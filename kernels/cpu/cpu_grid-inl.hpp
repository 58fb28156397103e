// The codec `bound` in vectors: rounds fp32 values to a grid, and packs blocks of 32 of them as
// bits of their multiples. The reference does both with doubles. Compiled once per target.

#if defined(QCCL_CPU_GRID_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef QCCL_CPU_GRID_INL
#undef QCCL_CPU_GRID_INL
#else
#define QCCL_CPU_GRID_INL
#endif

#include "kernels/codec/grid.hpp"
#include "kernels/codec/packing.hpp"
#include "kernels/cpu/cpu_group-inl.hpp"

HWY_BEFORE_NAMESPACE();

namespace qccl::HWY_NAMESPACE {

// ---- Encode

// What ValueGrid has, in vectors.
struct VectorGrid {
    ValueGrid<float> grid;

    HWY_INLINE FloatVector multiple(FloatVector x) const {
        const FloatVector whole = hn::Set(Floats(), 0x1.8p23F);
        return hn::Sub(hn::Add(hn::Mul(x, hn::Set(Floats(), grid.inverse)), whole), whole);
    }
    HWY_INLINE FloatVector value(FloatVector q) const {
        return hn::Mul(q, hn::Set(Floats(), grid.step));
    }
    HWY_INLINE FloatVector rounded(FloatVector x) const {
        const FloatVector q = multiple(x), y = value(q),
                          most = hn::Set(Floats(), static_cast<float>(largest_multiple));
        const auto is_near =
            hn::And(hn::Le(hn::Abs(q), most),
                    hn::Le(hn::Abs(hn::Sub(x, y)), hn::Set(Floats(), grid.distance)));
        return hn::IfThenElse(is_near, y, canonical_vector(x));
    }
};

// Calls visit(values, first, count) for the range's values as fp32, a tile at a time. A tile may be
// read up to its end.
template <class Visitor>
HWY_INLINE void for_each_tile(DataType in, const void *src, uint64_t count, const Visitor &visit) {
    const Groups groups{.first = 0,
                        .count = (count + group_values - 1) / group_values,
                        .per_block = 1,
                        .values = count};
    GroupSource source(in, src, groups);
    for (uint64_t i = 0; i < count; i += tile_values)
        visit(source.tile(i / group_values), i, std::min<uint64_t>(tile_values, count - i));
}

// The step of a chunk with a relative bound. The rest of a last tile repeats a value.
inline float step_of_range(DataType in, const void *src, uint64_t count, float bound) {
    const Floats d;
    constexpr float infinity = std::numeric_limits<float>::infinity();
    FloatVector low = hn::Set(d, infinity), high = hn::Set(d, -infinity), nothing = hn::Zero(d);
    for_each_tile(in, src, count, [&](const float *x, uint64_t, size_t) HWY_ATTR {
        for (size_t i = 0; i < tile_values; i += lanes()) {
            const FloatVector v = hn::LoadU(d, x + i);
            low = hn::Min(low, v);
            high = hn::Max(high, v);
            nothing = hn::Or(nothing, hn::Sub(v, v)); // NaN if v is not finite
        }
    });
    const bool are_finite = hn::AllFalse(d, hn::IsNaN(nothing));
    return range_step(hn::GetLane(hn::MinOfLanes(d, low)), hn::GetLane(hn::MaxOfLanes(d, high)),
                      are_finite, bound);
}

// Rounds up to a tile of values.
HWY_INLINE void round_tile(const VectorGrid &grid, const float *x, size_t count, std::byte *dst) {
    const Floats d;
    size_t i = 0;
    for (; i + lanes() <= count; i += lanes())
        hn::StoreU(grid.rounded(hn::LoadU(d, x + i)), d,
                   reinterpret_cast<float *>(dst + i * sizeof(float)));
    for (; i < count; i++) store_bits(dst, i, grid.grid.rounded(x[i]));
}

inline void encode_on_grid(const ChunkRange &range, DataType in, const void *src,
                           std::byte *payload) {
    float step = grid_step(range.codec->bound);
    if (range.codec->is_relative) {
        step = step_of_range(in, src, range.count, range.codec->bound);
        if (range.whole != 0) store_bits(payload + range.layout->scales, 0, step);
    }
    const VectorGrid grid{ValueGrid<float>(step)};
    std::byte *const dst = payload + range.begin * sizeof(float);
    for_each_tile(in, src, range.count, [&](const float *x, uint64_t first, size_t count) HWY_ATTR {
        round_tile(grid, x, count, dst + first * sizeof(float));
    });
}

// ---- Packed blocks

using CodeBits = hn::CappedTag<uint16_t, 2 * max_lanes>;
using HalfCodes = hn::Rebind<uint16_t, Floats>;

// Makes the codes of a block. Returns their width, or raw_width if a value is no multiple.
HWY_INLINE uint8_t make_codes(const VectorGrid &grid, const float *x, uint16_t *codes) {
    const Floats d;
    const Words bits;
    const FloatVector most = hn::Set(d, static_cast<float>(largest_multiple));
    auto are_multiples = hn::Eq(hn::Zero(d), hn::Zero(d));
    WordVector all = hn::Zero(bits);
    for (size_t i = 0; i < grid_block; i += lanes()) {
        const FloatVector v = hn::LoadU(d, x + i), q = grid.multiple(v);
        const auto is_same =
            hn::RebindMask(d, hn::Eq(hn::BitCast(bits, v), hn::BitCast(bits, grid.value(q))));
        are_multiples = hn::And(are_multiples, hn::And(is_same, hn::Le(hn::Abs(q), most)));
        const IntVector number = hn::ConvertTo(Ints(), q);
        const WordVector code =
            hn::BitCast(bits, hn::Xor(hn::ShiftLeft<1>(number), hn::ShiftRight<31>(number)));
        all = hn::Or(all, code);
        hn::StoreU(hn::TruncateTo(HalfCodes(), code), HalfCodes(), codes + i);
    }
    if (!hn::AllTrue(d, are_multiples)) return raw_width;
    // The largest number has as many bits as all of them have together.
    return static_cast<uint8_t>(std::bit_width(hn::GetLane(hn::MaxOfLanes(bits, all))));
}

HWY_INLINE void store_planes(const uint16_t *codes, uint32_t width, std::byte *dst) {
    const CodeBits d;
    for (uint32_t k = 0; k < width; k++) {
        const auto bit = hn::Set(d, static_cast<uint16_t>(1U << k));
        uint8_t mask[grid_block / 8 + 8]; // StoreMaskBits may write up to 8 bytes
        for (size_t i = 0; i < grid_block; i += hn::Lanes(d))
            hn::StoreMaskBits(d, hn::TestBit(hn::LoadU(d, codes + i), bit), mask + i / 8);
        std::memcpy(dst + k * (grid_block / 8), mask, grid_block / 8);
    }
}

HWY_INLINE void load_planes(const std::byte *src, uint32_t width, uint16_t *codes) {
    const CodeBits d;
    for (size_t i = 0; i < grid_block; i += hn::Lanes(d)) {
        auto code = hn::Zero(d);
        for (uint32_t k = 0; k < width; k++) {
            uint8_t mask[8 + 8] = {}; // LoadMaskBits may read up to 8 bytes
            std::memcpy(mask, src + k * (grid_block / 8), grid_block / 8);
            const auto has_bit = hn::LoadMaskBits(d, mask + i / 8);
            code = hn::Or(code,
                          hn::IfThenElseZero(has_bit, hn::Set(d, static_cast<uint16_t>(1U << k))));
        }
        hn::StoreU(code, d, codes + i);
    }
}

HWY_INLINE void values_of_codes(const VectorGrid &grid, const uint16_t *codes, float *dst) {
    const Floats d;
    const HalfCodes narrow;
    for (size_t i = 0; i < grid_block; i += lanes()) {
        const WordVector code = hn::PromoteTo(Words(), hn::LoadU(narrow, codes + i));
        const IntVector sign = hn::Neg(hn::BitCast(Ints(), hn::And(code, hn::Set(Words(), 1U))));
        const IntVector q = hn::Xor(hn::BitCast(Ints(), hn::ShiftRight<1>(code)), sign);
        hn::StoreU(grid.value(hn::ConvertTo(d, q)), d, dst + i);
    }
}

inline bool pack_blocks(const float *values, size_t count, PackedBlocks &blocks) {
    const VectorGrid grid{ValueGrid<float>(blocks.step)};
    const hn::Rebind<uint8_t, Floats> bytes;
    const HalfCodes halves;
    HWY_ALIGN float last[grid_block] = {};
    HWY_ALIGN uint16_t codes[grid_block];
    for (size_t at = 0; at < count; at += grid_block) {
        const float *x = values + at;
        if (count - at < grid_block) {
            std::memcpy(last, x, (count - at) * sizeof(float));
            x = last;
        }
        uint8_t width = make_codes(grid, x, codes);
        const bool is_symbols = blocks.codes_entropy && width <= most_symbol_width;
        if (is_symbols) width = 0;
        const size_t size = body_bytes(width, sizeof(float));
        if (size > blocks.room - blocks.body_bytes) return false;
        std::byte *const body = blocks.bodies + blocks.body_bytes;
        blocks.widths[at / grid_block] = width;
        blocks.body_bytes += size;
        if (is_symbols) {
            for (size_t i = 0; i < grid_block; i += lanes())
                hn::StoreU(hn::TruncateTo(bytes, hn::LoadU(halves, codes + i)), bytes,
                           blocks.symbols + blocks.symbol_count + i);
            blocks.symbol_count += grid_block;
        } else if (width == raw_width) {
            std::memcpy(body, x, grid_block * sizeof(float));
        } else {
            store_planes(codes, width, body);
        }
    }
    return true;
}

inline bool unpack_blocks(const PackedBlocks &blocks, float *values, size_t count) {
    const VectorGrid grid{ValueGrid<float>(blocks.step)};
    const hn::Rebind<uint8_t, Floats> bytes;
    const HalfCodes halves;
    const std::byte *body = blocks.bodies;
    const uint8_t *symbols = blocks.symbols;
    HWY_ALIGN float last[grid_block];
    HWY_ALIGN uint16_t codes[grid_block];
    for (size_t at = 0; at < count; at += grid_block) {
        const uint8_t width = blocks.widths[at / grid_block];
        float *const dst = count - at < grid_block ? last : values + at;
        if (width == raw_width) {
            std::memcpy(dst, body, grid_block * sizeof(float));
        } else {
            if (blocks.codes_entropy && width == 0) {
                for (size_t i = 0; i < grid_block; i += lanes())
                    hn::StoreU(hn::PromoteTo(halves, hn::LoadU(bytes, symbols + i)), halves,
                               codes + i);
                symbols += grid_block;
            } else {
                load_planes(body, width, codes);
            }
            values_of_codes(grid, codes, dst);
        }
        body += body_bytes(width, sizeof(float));
    }
    const size_t rest = count % grid_block;
    if (rest == 0) return true;
    std::memcpy(values + count - rest, last, rest * sizeof(float));
    return std::all_of(last + rest, last + grid_block,
                       [](float x) { return std::bit_cast<uint32_t>(x) == 0; });
}

inline bool pack_doubles(const double *values, size_t count, PackedBlocks &blocks) {
    return scalar_pack_steps.pack_doubles(values, count, blocks);
}
inline bool unpack_doubles(const PackedBlocks &blocks, double *values, size_t count) {
    return scalar_pack_steps.unpack_doubles(blocks, values, count);
}

} // namespace qccl::HWY_NAMESPACE

HWY_AFTER_NAMESPACE();
#endif
