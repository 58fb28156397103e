// A codec as data: its parameters, its row in the table of codecs (all that differs between codecs
// except their arithmetic), the sizes of its output and the calls it supports. WIRE.md defines the
// bytes, and kernels/ writes them. Used by planner, engine, kernels and C API. Pure; any thread may
// call. codec_spec.cpp defines specs.
#pragma once

#include "base/result.hpp"
#include "base/types.hpp"
#include "codec/budget.hpp"
#include "codec/codec_keys.hpp"
#include "codec/noise.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace qccl {

// ---- Codecs

// The numbers are on the wire and never reused.
enum class CodecId : uint8_t {
    none = 0,
    fp16 = 1,
    bf16 = 2,
    fp8e4m3 = 3,
    fp8e5m2 = 4,
    integer = 5,
    minmax = 6,
    mxfp8e4m3 = 7,
    mxfp6e2m3 = 8,
    mxfp4 = 9,
    nvfp4 = 10,
    onebit = 11,
    terngrad = 12,
    topk = 13,
    norm = 14,
    dgc = 15,
    dummy = 16,
    lossless = 17,
    tbq = 18,
    bound = 19,
};

// dither adds noise before it rounds to the nearest, and a decoder subtracts the noise again.
enum class Rounding : uint8_t { nearest = 0, stochastic = 1, dither = 2 };

// How the scales of small floats are rounded: up (ceil), so that no value of a block saturates, or
// as OCP's formats define (ocp).
enum class Scaling : uint8_t { ceil = 0, ocp = 1 };

// What a bucket of `norm` is divided by: the root of the sum of its squares, or its largest
// magnitude.
enum class BucketNorm : uint8_t { l2 = 0, linf = 1 };
// The magnitudes that codes of `norm` stand for: multiples of a step, or zero and powers of two.
enum class Levels : uint8_t { uniform = 0, exponential = 1 };

struct CodecRow;

struct Codec {
    static constexpr uint32_t whole_chunk = 0; // bucket=all

    CodecId id = CodecId::none;
    // Bits of a code that is stored in planes. integer: 2 3 4 5 6 8 10 12; minmax: 1 .. 8; norm:
    // 2 .. 8; mx and nvfp4: bits of the element; fp8 with a block: 8; onebit: 1; tbq: 2; others 0.
    uint8_t bits = 0;
    Rounding rounding = Rounding::nearest;
    bool skips_incomplete = false; // minmax: a last, incomplete bucket travels as values
    // Values that share a scale (integer, fp8: "block"; mx: 32); others 0, and fp8 that is a cast.
    uint32_t bucket = 0;
    uint64_t seed = 0; // for rounding with noise
    // Calls on fewer bytes are not encoded; empty: the planner chooses.
    std::optional<uint64_t> min_bytes{};
    Scaling scaling = Scaling::ceil;  // mx and nvfp4
    BucketNorm norm = BucketNorm::l2; // norm
    Levels levels = Levels::uniform;  // norm
    // terngrad: values are clipped at this many thousandths of their root mean square; others 0.
    uint32_t clip = 0;
    float threshold = 0; // tbq: what values become that reach it; others 0
    uint32_t share = 0;  // topk, dgc, dummy: millionths of a chunk's values that are kept; others 0
    // dgc: what a state keeps of a velocity at each call, in thousandths, and the number of calls
    // of a state until the share is the final one. Never on the wire.
    uint32_t momentum = 0, warm_up = 0;
    // Chunks travel packed, if that makes them smaller: their codes, or the exponents of their
    // values, are entropy coded. lossless and bound: always.
    bool packs = false;
    // integer and minmax: values that a randomised Hadamard transform mixes before they are encoded
    // (key rotate), a power of two from least_rotation to most_rotation; 0: none.
    uint32_t rotation = 0;
    // bound: no value changes by more than this, or than so much of the range of its chunk's values
    // (relative) or of itself (pointwise); and packed chunks have entropy coded codes.
    float bound = 0;
    bool is_relative = false, is_pointwise = false, codes_entropy = false;
    // auto: `id` is none until the planner has chosen. Never on the wire.
    Budget budget{};
    // Calls are not encoded while samples of their values would lose more than this NMSE; 0: no
    // limit. Never on the wire.
    double guard = 0;
    // Where has_owners() is true; elsewhere `decoded`. Never on the wire.
    OwnerKeeps owner = OwnerKeeps::decoded;
    // exact: values travel as with `none`, and sums are rounded once, so that their bits depend on
    // the summands alone. Never on the wire.
    bool sums_exactly = false;
    // shared: ranks agree on a scale for each block of so many values, and sum integers of so many
    // bits, which travel with the rest of this codec (shared_scales.hpp). Never on the wire.
    uint8_t shared_bits = 0;
    uint32_t shared_block = 0;

    bool is_auto() const { return static_cast<bool>(budget); }
    constexpr const CodecRow &row() const;
    // Whether values travel as they are.
    bool is_lossless() const;
    // Whether calls keep the type of their values; otherwise complex numbers are pairs of reals.
    bool keeps_type() const { return is_lossless() && !sums_exactly && !shares_scales(); }
    bool shares_scales() const { return shared_bits != 0; }
    // Whether values that were encoded may differ from what is decoded.
    bool loses() const { return shares_scales() || (!is_lossless() && id != CodecId::lossless); }
    // A cast converts each value by itself, so every operation works on its output.
    bool is_cast() const;
    bool draws_noise() const { return rounding != Rounding::nearest; }
    // Whether decoders need the noise that the encoder has drawn.
    bool dithers() const { return rounding == Rounding::dither; }
    // Whether the payload consists of values alone, one after the other; a grid's step may follow.
    bool is_plain() const;
    // Returns the type in which values without codes travel: the cast's own type, the accumulator's
    // if there is a grid, else the tensor's.
    DataType plain_type(DataType tensor) const;
    // Whether values are rounded to a grid, multiples of a step (kernels/codec/grid.hpp).
    bool has_grid() const;
    // Whether a bucket is the whole chunk, so that the vector cannot be cut.
    bool has_whole_buckets() const;
    // Returns the number of values from a chunk's start at whose multiples blocks begin of which a
    // value's code depends on all others; 1 where codes depend on one value alone.
    uint64_t unit_values() const;
    // Returns the codec without min, guard, owner and the like, which say how calls use it.
    Codec without_use() const;
    // Returns the codec of a state's call of this number, from 1 on: during the warm-up it keeps a
    // larger share.
    Codec at_call(uint64_t call) const;
    bool operator==(const Codec &) const = default;
};

// Larger buckets are refused; the caller should ask for bucket=all instead.
inline constexpr uint32_t largest_bucket = 1U << 30;
// The values of a guard's sample; codecs with larger buckets have no guard.
inline constexpr uint32_t largest_guarded_bucket = 4096;

// Values that share a scale in OCP's formats.
inline constexpr uint32_t mx_block_values = 32;
inline constexpr uint8_t most_code_bits = 8;     // that the key bits may give
inline constexpr uint32_t whole_share = 1000000; // all values of a chunk
// bound: what abs, rel and pw may be. Steps and their reciprocals are normal numbers in fp32.
inline constexpr float least_absolute = 1e-36F, largest_absolute = 1e36F, least_relative = 1e-9F,
                       least_pointwise = 1e-6F, largest_pointwise = 0.5F;
inline constexpr uint32_t usual_clip = 2500, largest_clip = 1000000;
inline constexpr uint32_t whole_momentum = 1000, usual_momentum = 900, longest_warm_up = 1000000000;
// nvfp4: buckets consist of whole groups of codes.
inline constexpr uint32_t nvfp4_block_values = 16, nvfp4_bucket_step = 32;
// Bounds of the key rotate, of blocks and buckets beside it, and of blocks of fp8.
inline constexpr uint32_t least_rotation = 32, most_rotation = 512;

// ---- The table of codecs

// The arithmetic: which formulas the values, their errors and the checks of scales follow. Several
// codecs may share one.
enum class CodecKind : uint8_t {
    plain,    // values as they are
    cast,     // values of a narrower type
    integer,  // multiples of a block's scale
    minmax,   // steps between a bucket's extremes
    mx,       // small floats under a block's power of two
    nvfp4,    // small floats under a block's scale, which is a small float under a bucket's base
    onebit,   // signs, and the means of a bucket's values of each sign
    terngrad, // -1, 0 or 1 times a bucket's scale
    topk,     // the largest values alone
    norm,     // a sign, and a level between zero and a bucket's norm
    tbq,      // plus or minus a threshold, which the codec has, or zero
    dummy,    // the first values alone: as many bytes as a codec that is only thought of
    grid,     // multiples of one step, or rounded values; values where that is too far away
    scaled,   // small floats under a block's scale
};

// A name that is a codec without further keys, and the bits that it stands for.
struct BitsName {
    std::string_view name;
    uint8_t bits;
};

// Everything that is asked about a codec except its arithmetic. A field without a default is one
// that every row states.
struct CodecRow {
    CodecId id;
    std::string_view name;
    CodecKind kind;
    Codec usual; // the codec of the bare name
    // The keys of its specs. A parameter whose key is missing always has its usual value.
    SpecKeys keys;
    // The names of specs, if each number of bits has its own; otherwise `name` is the only one.
    std::span<const BitsName> bits_names = {};
    bool takes_whole_chunk = false; // bucket=all is possible
    uint32_t bucket_step = 1;       // buckets are multiples of this many values
    uint8_t least_bits = 1;         // that the key bits may give
    bool takes_dither = false;      // round=dither is possible: codes are evenly spaced

    std::optional<DataType> cast = {}; // cast: the type of its values
    FloatFormat element = {};          // the format of a value under its scale

    // Sections of the payload, besides the planes of `bits`. A scale of `scale_bytes` belongs to
    // `scale_values` values; 0: to a block or bucket.
    size_t scale_bytes = 0;
    uint32_t scale_values = 0;
    bool has_bases = false;  // an fp32 per bucket, the unit of its scales
    bool has_digits = false; // digits of base 3 instead of planes
    bool is_sparse = false;  // pages with the indices of values that are kept, and these values

    // Vector code handles only the blocks that is_vector_block (chunk.hpp) names.
    bool needs_vector_block = false;
    // Position in the value of the key from, for a codec that auto may choose; 0: auto never
    // chooses it. A codec with a position has bounds in error_model.cpp, and no other has.
    uint8_t auto_position = 0;

    constexpr bool takes(SpecKey key) const { return (keys & key_bit(key)) != 0; }
};

constexpr Codec usual_codec(CodecId id, uint8_t bits = 0, uint32_t bucket = 0) {
    Codec codec;
    codec.id = id;
    codec.bits = bits;
    codec.bucket = bucket;
    return codec;
}

inline constexpr uint32_t usual_block = 32, usual_bucket = 512, usual_nvfp4_bucket = 1024;

inline constexpr SpecKeys use_keys = key_bits({SpecKey::min, SpecKey::guard, SpecKey::owner}),
                          cast_keys = use_keys | key_bit(SpecKey::entropy),
                          noise_keys = key_bits({SpecKey::round, SpecKey::seed}),
                          mx_keys = cast_keys | noise_keys | key_bit(SpecKey::scale),
                          scaled_keys = cast_keys | noise_keys | key_bit(SpecKey::block),
                          auto_keys = use_keys |
                                      key_bits({SpecKey::nmse, SpecKey::most_bits, SpecKey::from});

// The usual one first of those that have the most bits, as help texts list them.
inline constexpr BitsName int_names[] = {{"int12", 12}, {"int10", 10}, {"int8", 8}, {"int6", 6},
                                         {"int5", 5},   {"int4", 4},   {"int3", 3}, {"int2", 2}};

// Formats of OCP's elements: E4M3, E2M3 and E2M1.
inline constexpr FloatFormat e4m3_element = info(DataType::float8e4m3).format,
                             e2m3_element{3, 0, 2, 7.5}, e2m1_element{1, 0, 2, 6};

// nvfp4's scales have a fraction. Rounded up, they would increase the values at every hop.
inline constexpr Codec usual_nvfp4 = [] {
    Codec codec = usual_codec(CodecId::nvfp4, 4, usual_nvfp4_bucket);
    codec.scaling = Scaling::ocp;
    return codec;
}();

inline constexpr Codec usual_terngrad = [] {
    Codec codec = usual_codec(CodecId::terngrad, 0, usual_bucket);
    codec.rounding = Rounding::stochastic; // always
    codec.clip = usual_clip;
    return codec;
}();

inline constexpr Codec usual_topk = [] {
    Codec codec = usual_codec(CodecId::topk);
    codec.share = whole_share / 1000;
    return codec;
}();

inline constexpr Codec usual_dgc = [] {
    Codec codec = usual_topk;
    codec.id = CodecId::dgc;
    codec.momentum = usual_momentum;
    return codec;
}();

inline constexpr Codec usual_dummy = [] {
    Codec codec = usual_codec(CodecId::dummy);
    codec.share = whole_share / 4;
    return codec;
}();

inline constexpr Codec usual_norm = [] {
    Codec codec = usual_codec(CodecId::norm, 8, usual_bucket);
    codec.rounding = Rounding::stochastic;
    return codec;
}();

inline constexpr Codec usual_exact = [] {
    Codec codec;
    codec.sums_exactly = true;
    return codec;
}();

// Few codes are not zero, so chunks are packed.
inline constexpr Codec usual_tbq = [] {
    Codec codec = usual_codec(CodecId::tbq, 2);
    codec.threshold = 0.01F;
    codec.packs = true;
    return codec;
}();

inline constexpr Codec usual_lossless = [] {
    Codec codec = usual_codec(CodecId::lossless);
    codec.packs = true;
    return codec;
}();

inline constexpr Codec usual_bound = [] {
    Codec codec = usual_codec(CodecId::bound);
    codec.packs = codec.is_relative = true;
    codec.bound = 0.001F;
    return codec;
}();

inline constexpr uint8_t least_shared_bits = 2, most_shared_bits = 8;
inline constexpr Codec usual_shared = [] {
    Codec codec = usual_codec(CodecId::bound);
    codec.packs = true;
    codec.bound = 0.502F; // its step is 1, so integers are multiples
    codec.shared_bits = 4;
    codec.shared_block = usual_block;
    return codec;
}();

// In the order of the numbers: the number is the index.
inline constexpr auto codec_table = std::to_array<CodecRow>({
    {.id = CodecId::none,
     .name = "none",
     .kind = CodecKind::plain,
     .usual = usual_codec(CodecId::none),
     .keys = 0},
    {.id = CodecId::fp16,
     .name = "fp16",
     .kind = CodecKind::cast,
     .usual = usual_codec(CodecId::fp16),
     .keys = cast_keys | noise_keys,
     .cast = DataType::float16},
    {.id = CodecId::bf16,
     .name = "bf16",
     .kind = CodecKind::cast,
     .usual = usual_codec(CodecId::bf16),
     .keys = cast_keys | noise_keys,
     .cast = DataType::bfloat16,
     .auto_position = 4},
    {.id = CodecId::fp8e4m3,
     .name = "fp8e4m3",
     .kind = CodecKind::cast,
     .usual = usual_codec(CodecId::fp8e4m3),
     .keys = scaled_keys,
     .cast = DataType::float8e4m3},
    {.id = CodecId::fp8e5m2,
     .name = "fp8e5m2",
     .kind = CodecKind::cast,
     .usual = usual_codec(CodecId::fp8e5m2),
     .keys = scaled_keys,
     .cast = DataType::float8e5m2},
    {.id = CodecId::integer,
     .name = "int",
     .kind = CodecKind::integer,
     .usual = usual_codec(CodecId::integer, 8, usual_block),
     .keys = cast_keys | noise_keys | key_bits({SpecKey::block, SpecKey::rotate}),
     .bits_names = int_names,
     .takes_dither = true,
     .scale_bytes = sizeof(uint16_t),
     .needs_vector_block = true,
     .auto_position = 1},
    {.id = CodecId::minmax,
     .name = "minmax",
     .kind = CodecKind::minmax,
     .usual = usual_codec(CodecId::minmax, 8, usual_bucket),
     .keys = cast_keys | noise_keys |
             key_bits({SpecKey::bits, SpecKey::bucket, SpecKey::skip_incomplete, SpecKey::rotate}),
     .takes_whole_chunk = true,
     .takes_dither = true,
     .scale_bytes = 2 * sizeof(float),
     .auto_position = 2},
    {.id = CodecId::mxfp8e4m3,
     .name = "mxfp8e4m3",
     .kind = CodecKind::mx,
     .usual = usual_codec(CodecId::mxfp8e4m3, 8, mx_block_values),
     .keys = mx_keys,
     .element = e4m3_element,
     .scale_bytes = sizeof(uint8_t)},
    {.id = CodecId::mxfp6e2m3,
     .name = "mxfp6e2m3",
     .kind = CodecKind::mx,
     .usual = usual_codec(CodecId::mxfp6e2m3, 6, mx_block_values),
     .keys = mx_keys,
     .element = e2m3_element,
     .scale_bytes = sizeof(uint8_t)},
    {.id = CodecId::mxfp4,
     .name = "mxfp4",
     .kind = CodecKind::mx,
     .usual = usual_codec(CodecId::mxfp4, 4, mx_block_values),
     .keys = mx_keys,
     .element = e2m1_element,
     .scale_bytes = sizeof(uint8_t)},
    {.id = CodecId::nvfp4,
     .name = "nvfp4",
     .kind = CodecKind::nvfp4,
     .usual = usual_nvfp4,
     .keys = mx_keys | key_bit(SpecKey::bucket),
     .takes_whole_chunk = true,
     .bucket_step = nvfp4_bucket_step,
     .element = e2m1_element,
     .scale_bytes = sizeof(uint8_t),
     .scale_values = nvfp4_block_values,
     .has_bases = true,
     .auto_position = 3},
    {.id = CodecId::onebit,
     .name = "onebit",
     .kind = CodecKind::onebit,
     .usual = usual_codec(CodecId::onebit, 1, usual_bucket),
     .keys = cast_keys | key_bit(SpecKey::bucket),
     .scale_bytes = 2 * sizeof(float)},
    {.id = CodecId::terngrad,
     .name = "terngrad",
     .kind = CodecKind::terngrad,
     .usual = usual_terngrad,
     .keys = cast_keys | key_bits({SpecKey::bucket, SpecKey::clip, SpecKey::seed}),
     .scale_bytes = sizeof(float),
     .has_digits = true},
    {.id = CodecId::topk,
     .name = "topk",
     .kind = CodecKind::topk,
     .usual = usual_topk,
     .keys = key_bits({SpecKey::ratio, SpecKey::min, SpecKey::owner}),
     .is_sparse = true},
    {.id = CodecId::norm,
     .name = "norm",
     .kind = CodecKind::norm,
     .usual = usual_norm,
     .keys = cast_keys | noise_keys |
             key_bits({SpecKey::bits, SpecKey::bucket, SpecKey::norm, SpecKey::levels}),
     .least_bits = 2,
     .scale_bytes = sizeof(float)},
    {.id = CodecId::dgc,
     .name = "dgc",
     .kind = CodecKind::topk,
     .usual = usual_dgc,
     .keys = key_bits(
         {SpecKey::ratio, SpecKey::momentum, SpecKey::warmup, SpecKey::min, SpecKey::owner}),
     .is_sparse = true},
    {.id = CodecId::dummy,
     .name = "dummy",
     .kind = CodecKind::dummy,
     .usual = usual_dummy,
     .keys = key_bits({SpecKey::ratio, SpecKey::min, SpecKey::owner})},
    {.id = CodecId::lossless,
     .name = "lossless",
     .kind = CodecKind::plain,
     .usual = usual_lossless,
     .keys = key_bit(SpecKey::min)},
    {.id = CodecId::tbq,
     .name = "tbq",
     .kind = CodecKind::tbq,
     .usual = usual_tbq,
     .keys = cast_keys | key_bit(SpecKey::threshold)},
    {.id = CodecId::bound,
     .name = "bound",
     .kind = CodecKind::grid,
     .usual = usual_bound,
     .keys = cast_keys | key_bits({SpecKey::abs, SpecKey::rel, SpecKey::pw})},
});
static_assert(is_in_order(codec_table, &CodecRow::id));
static_assert(codec_table.size() <= 32, "Budget::from has a bit for each codec");

// fp8 with a block, where the values are scaled before they are cast: has the cast's number.
constexpr CodecRow scaled_row(const CodecRow &cast) {
    return {.id = cast.id,
            .name = cast.name,
            .kind = CodecKind::scaled,
            .usual = usual_codec(cast.id, 8, usual_block),
            .keys = cast.keys,
            .element = info(*cast.cast).format,
            .scale_bytes = sizeof(uint16_t)};
}
inline constexpr CodecRow scaled_table[] = {scaled_row(codec_table[3]), scaled_row(codec_table[4])};

// The row of numbers that no codec has; such a number may come from outside.
inline constexpr CodecRow unknown_codec{
    .id = CodecId{255}, .name = "unknown", .kind = CodecKind::plain, .usual = {}, .keys = 0};

constexpr const CodecRow &row_of(CodecId id) {
    const auto number = static_cast<size_t>(id);
    return number < codec_table.size() ? codec_table[number] : unknown_codec;
}

constexpr const CodecRow &Codec::row() const {
    const CodecRow &row = row_of(id);
    if (bucket == 0 || !row.cast || !row.takes(SpecKey::block)) return row;
    return scaled_table[id == scaled_table[0].id ? 0 : 1];
}
inline bool Codec::is_lossless() const { return id == CodecId::none && !is_auto(); }
inline bool Codec::is_plain() const {
    return is_lossless() || is_cast() || has_grid() || id == CodecId::lossless;
}
inline bool Codec::has_grid() const { return row().kind == CodecKind::grid; }
inline bool Codec::is_cast() const { return row().cast.has_value(); }
inline DataType Codec::plain_type(DataType tensor) const {
    return has_grid() ? accumulator_of(tensor) : row().cast.value_or(tensor);
}
inline bool Codec::has_whole_buckets() const {
    return row().takes(SpecKey::ratio) || is_relative ||
           (row().takes_whole_chunk && bucket == whole_chunk);
}
inline uint64_t Codec::unit_values() const {
    // Both are powers of two where there is a rotation.
    return std::max({uint64_t{bucket}, uint64_t{rotation}, uint64_t{1}});
}
inline Codec Codec::without_use() const {
    Codec codec = *this;
    codec.min_bytes.reset();
    codec.guard = 0;
    codec.owner = OwnerKeeps::decoded;
    codec.sums_exactly = false;
    codec.shared_bits = 0;
    codec.shared_block = 0;
    return codec;
}

// Returns the usual codec of the name; for use at compile time with names of the table.
constexpr Codec usual_codec(std::string_view name) {
    for (const CodecRow &row : codec_table)
        if (row.name == name) return row.usual;
    return usual_codec(unknown_codec.id);
}

// ---- What codecs support

// Whether the parameters fit together. True for all codecs that headers carry and for all that
// parse_codec returns except auto, for which the planner has to choose first.
bool is_possible(const Codec &codec);

// Parses a spec such as "int4:block=32,round=stochastic". The error (invalid_argument) lists what
// is possible.
Result<Codec> parse_codec(std::string_view spec);
// Parses a list such as "none,int4:block=32,round=stochastic,int8". An item with '=' and no name
// continues the item before it.
Result<std::vector<Codec>> parse_codec_list(std::string_view specs);
// Returns the shortest spec that parse_codec reads back to the same codec.
std::string spec(const Codec &codec);

// Whether `collective` can combine values of `type` with `op`; true if it combines none. The error
// (invalid_argument) names both and lists what is possible.
Done check_op(Collective collective, DataType type, RedOp op);

// Values as codecs see them: complex numbers are twice as many reals wherever they are moved or
// summed.
struct CodedValues {
    DataType type;
    uint64_t count;
};
constexpr CodedValues coded_values(Collective collective, DataType type, RedOp op, uint64_t count) {
    const bool is_product = op == RedOp::pre_mul_sum && info(type).kind == TypeKind::complex;
    if (reduces(collective) && (!adds(op) || is_product)) return {type, count};
    return {real_type(type), count * reals_of(type)};
}

// Whether the codec encodes values of `type`. The error (invalid_argument) says why not.
Done check_type(const Codec &codec, DataType type);

// Whether the codec can encode `collective` on values of `type` combined with `op`: casts do every
// op of floats, the others sum and avg, and all other values travel unencoded. The error
// (invalid_argument) says why not, also if check_op does.
Done check_codec(const Codec &codec, Collective collective, DataType type, RedOp op);
// Whether the codec has a use where calls name none themselves, which is in reductions alone. The
// error is invalid_argument.
Done check_for_reductions(const Codec &codec);

// Returns the grid: chunks, lanes and segments are cut at multiples of this many elements. For
// bucket=all the grid is 64, and a segment is a whole chunk.
size_t grain(const Codec &codec);
// Returns the grid for a call that uses both codecs.
size_t grain(const Codec &codec, const Codec &other);

} // namespace qccl
