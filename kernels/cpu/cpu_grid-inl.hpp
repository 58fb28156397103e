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

// What PointGrid has, in vectors.
struct VectorPoints {
    PointGrid<float> grid;

    HWY_INLINE FloatVector rounded(FloatVector x) const {
        const Words d;
        const Floats df;
        using Grid = PointGrid<float>;
        const WordVector bits = hn::BitCast(d, x),
                         number = hn::And(bits, hn::Set(d, Grid::magnitude));
        const WordVector odd = hn::And(hn::ShiftRightSame(number, grid.shift), hn::Set(d, 1U));
        const WordVector half = hn::Add(odd, hn::Set(d, (1U << (grid.shift - 1)) - 1));
        const WordVector place = hn::ShiftRightSame(hn::Add(number, half), grid.shift);
        const WordVector y = hn::Or(hn::ShiftLeftSame(place, grid.shift),
                                    hn::AndNot(hn::Set(d, Grid::magnitude), bits));
        const auto stays =
            hn::Or(hn::Not(exceeds(number, Grid::least - 1)), exceeds(place, grid.last_place()));
        return hn::IfThenElse(stays, canonical_vector(x), hn::BitCast(df, y));
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
template <class Grid>
HWY_INLINE void round_tile(const Grid &grid, const float *x, size_t count, std::byte *dst) {
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
    const VectorPoints points{PointGrid<float>(kept_fraction_bits(range.codec->bound))};
    std::byte *const dst = payload + range.begin * sizeof(float);
    for_each_tile(in, src, range.count, [&](const float *x, uint64_t first, size_t count) HWY_ATTR {
        if (range.codec->is_pointwise)
            round_tile(points, x, count, dst + first * sizeof(float));
        else
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

// Which of lanes() values, given as magnitudes, a pointwise bound gives codes.
HWY_INLINE auto are_zeros(WordVector magnitudes) {
    return hn::RebindMask(Floats(), hn::Eq(magnitudes, hn::Zero(Words())));
}
HWY_INLINE auto are_numbers(const PointGrid<float> &grid, WordVector magnitudes,
                            WordVector places) {
    const auto are_whole =
        hn::RebindMask(Floats(), hn::Eq(hn::ShiftLeftSame(places, grid.shift), magnitudes));
    return hn::AndNot(exceeds(places, grid.last_place()),
                      hn::And(are_whole, exceeds(magnitudes, PointGrid<float>::least - 1)));
}

// The same with a pointwise bound. `base` becomes the least place of the block's numbers.
HWY_INLINE uint8_t make_point_codes(const PointGrid<float> &grid, const float *x, uint16_t *codes,
                                    uint32_t &base) {
    const Words d;
    const WordVector none = hn::Set(d, PointGrid<float>::magnitude);
    auto have_codes = hn::Eq(hn::Zero(Floats()), hn::Zero(Floats()));
    WordVector lowest = none, all = hn::Zero(d);
    for (size_t i = 0; i < grid_block; i += lanes()) {
        const WordVector magnitudes = magnitude_of(hn::LoadU(Floats(), x + i));
        const WordVector places = hn::ShiftRightSame(magnitudes, grid.shift);
        const auto numbers = are_numbers(grid, magnitudes, places);
        have_codes = hn::And(have_codes, hn::Or(are_zeros(magnitudes), numbers));
        lowest = hn::Min(lowest, choose(numbers, places, none));
    }
    if (!hn::AllTrue(Floats(), have_codes)) return raw_width;
    base = hn::GetLane(hn::MinOfLanes(d, lowest));
    if (base == PointGrid<float>::magnitude) base = 0;
    for (size_t i = 0; i < grid_block; i += lanes()) {
        const WordVector magnitudes = magnitude_of(hn::LoadU(Floats(), x + i));
        const WordVector places = hn::ShiftRightSame(magnitudes, grid.shift);
        const WordVector distance = hn::Add(hn::Sub(places, hn::Set(d, base)), hn::Set(d, 1U));
        const WordVector signs = hn::ShiftRight<31>(hn::BitCast(d, hn::LoadU(Floats(), x + i)));
        const WordVector code =
            hn::Or(hn::ShiftLeft<1>(choose(are_zeros(magnitudes), hn::Zero(d), distance)), signs);
        all = hn::Or(all, code);
        hn::StoreU(hn::TruncateTo(HalfCodes(), code), HalfCodes(), codes + i);
    }
    const auto width = static_cast<uint8_t>(std::bit_width(hn::GetLane(hn::MaxOfLanes(d, all))));
    return width > most_grid_width ? raw_width : width;
}

// Returns false if a code stands for no number.
HWY_INLINE bool values_of_point_codes(const PointGrid<float> &grid, uint32_t base,
                                      const uint16_t *codes, float *dst) {
    const Words d;
    const Floats df;
    auto is_strange = exceeds(hn::Zero(d), 0);
    for (size_t i = 0; i < grid_block; i += lanes()) {
        const WordVector code = hn::PromoteTo(d, hn::LoadU(HalfCodes(), codes + i));
        const WordVector distance = hn::ShiftRight<1>(code);
        const auto is_number = exceeds(distance, 0);
        // A damaged base may be beyond all places, or so large that the sum begins anew.
        const WordVector place = hn::Sub(hn::Add(hn::Set(d, base), distance), hn::Set(d, 1U));
        const WordVector known = hn::Min(place, hn::Set(d, grid.last_place() + 1));
        const auto is_place =
            hn::AndNot(exceeds(known, grid.last_place()), exceeds(known, grid.least_place() - 1));
        is_strange = hn::Or(is_strange, hn::AndNot(is_place, is_number));
        const WordVector number =
            choose(is_number, hn::ShiftLeftSame(known, grid.shift), hn::Zero(d));
        hn::StoreU(hn::BitCast(df, hn::Or(number, hn::ShiftLeft<31>(code))), df, dst + i);
    }
    return hn::AllFalse(df, is_strange);
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
    const PointGrid<float> points(blocks.kept);
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
        uint32_t base = 0;
        uint8_t width = blocks.is_pointwise ? make_point_codes(points, x, codes, base)
                                            : make_codes(grid, x, codes);
        const bool is_symbols = blocks.codes_entropy && width <= most_symbol_width;
        if (is_symbols) width = 0;
        const size_t size = body_bytes(width, sizeof(float), blocks.is_pointwise);
        if (size > blocks.room - blocks.body_bytes) return false;
        std::byte *body = blocks.bodies + blocks.body_bytes;
        blocks.widths[at / grid_block] = width;
        blocks.body_bytes += size;
        if (blocks.is_pointwise && width != raw_width) {
            std::memcpy(body, &base, sizeof base);
            body += sizeof base;
        }
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
    const PointGrid<float> points(blocks.kept);
    const hn::Rebind<uint8_t, Floats> bytes;
    const HalfCodes halves;
    const std::byte *body = blocks.bodies;
    const uint8_t *symbols = blocks.symbols;
    HWY_ALIGN float last[grid_block];
    HWY_ALIGN uint16_t codes[grid_block];
    for (size_t at = 0; at < count; at += grid_block) {
        const uint8_t width = blocks.widths[at / grid_block];
        float *const dst = count - at < grid_block ? last : values + at;
        const bool has_base = blocks.is_pointwise && width != raw_width;
        const uint32_t base = has_base ? load_bits<uint32_t>(body, 0) : 0;
        if (width == raw_width) {
            std::memcpy(dst, body, grid_block * sizeof(float));
        } else {
            if (blocks.codes_entropy && width == 0) {
                for (size_t i = 0; i < grid_block; i += lanes())
                    hn::StoreU(hn::PromoteTo(halves, hn::LoadU(bytes, symbols + i)), halves,
                               codes + i);
                symbols += grid_block;
            } else {
                load_planes(body + (has_base ? sizeof base : 0), width, codes);
            }
            if (!blocks.is_pointwise)
                values_of_codes(grid, codes, dst);
            else if (!values_of_point_codes(points, base, codes, dst))
                return false;
        }
        body += body_bytes(width, sizeof(float), blocks.is_pointwise);
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
