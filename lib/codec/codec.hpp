// A codec as data: its parameters, the sizes of its output, and the calls it supports. WIRE.md
// defines the bytes, and kernels/ writes them. Used by planner, engine and C API. Pure; any thread
// may call.
#pragma once

#include "base/result.hpp"
#include "base/types.hpp"
#include "codec/budget.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace qccl {

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
};

enum class Rounding : uint8_t { nearest = 0, stochastic = 1 };

// How the scales of small floats are rounded: up (ceil), so that no value of a block saturates, or
// as OCP's formats define (ocp).
enum class Scaling : uint8_t { ceil = 0, ocp = 1 };

struct Codec {
    static constexpr uint32_t whole_chunk = 0; // bucket=all

    CodecId id = CodecId::none;
    // Bits of a code that is stored in planes. integer: 2 3 4 5 6 8 10 12; minmax: 1 .. 8; mx and
    // nvfp4: bits of the element; onebit: 1; others 0.
    uint8_t bits = 0;
    Rounding rounding = Rounding::nearest;
    bool skips_incomplete = false; // minmax: a last, incomplete bucket travels as values
    uint32_t bucket = 0;           // values that share a scale (integer: "block"; mx: 32); others 0
    uint64_t seed = 0;             // for stochastic rounding
    // Calls on fewer bytes are not encoded; empty: the planner chooses.
    std::optional<uint64_t> min_bytes{};
    Scaling scaling = Scaling::ceil; // mx and nvfp4
    // terngrad: values are clipped at this many thousandths of their root mean square; others 0.
    uint32_t clip = 0;
    uint32_t share = 0; // topk: millionths of a chunk's values that are kept; others 0
    // auto: `id` is none until the planner has chosen. Never on the wire.
    Budget budget{};
    // Calls are not encoded while samples of their values would lose more than this NMSE; 0: no
    // limit. Never on the wire.
    double guard = 0;

    bool is_auto() const { return static_cast<bool>(budget); }
    bool is_lossless() const { return id == CodecId::none && !is_auto(); }
    // A cast converts each value by itself, so every operation works on its output.
    bool is_cast() const { return id >= CodecId::fp16 && id <= CodecId::fp8e5m2; }
    // Whether the payload consists of the values alone, one after the other.
    bool is_plain() const { return is_lossless() || is_cast(); }
    bool is_mx() const { return id >= CodecId::mxfp8e4m3 && id <= CodecId::mxfp4; }
    // Returns the type in which values without codes travel: the cast's own type, else the
    // tensor's.
    DataType plain_type(DataType tensor) const {
        switch (id) {
        case CodecId::fp16: return DataType::float16;
        case CodecId::bf16: return DataType::bfloat16;
        case CodecId::fp8e4m3: return DataType::float8e4m3;
        case CodecId::fp8e5m2: return DataType::float8e5m2;
        default: return tensor;
        }
    }
    // Whether a bucket is the whole chunk, so that the vector cannot be cut.
    bool has_whole_buckets() const {
        return id == CodecId::topk ||
               ((id == CodecId::minmax || id == CodecId::nvfp4) && bucket == whole_chunk);
    }
    bool operator==(const Codec &) const = default;
};

// Larger buckets are refused; the caller should ask for bucket=all instead.
inline constexpr uint32_t largest_bucket = 1U << 30;
// A guard's sample has this many values; codecs with larger buckets have no guard.
inline constexpr uint32_t largest_guarded_bucket = 4096;

// Values that share a scale in OCP's formats.
inline constexpr uint32_t mx_block_values = 32;
inline constexpr uint32_t whole_share = 1000000; // all values of a chunk
inline constexpr uint32_t usual_clip = 2500, largest_clip = 1000000;
// nvfp4: buckets consist of whole groups of codes.
inline constexpr uint32_t nvfp4_block_values = 16, nvfp4_bucket_step = 32;

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

// The names and keys that parse_codec accepts, for help texts.
struct CodecName {
    std::string_view name;
    std::vector<std::string_view> keys; // the keys it takes
};
std::vector<CodecName> codec_names(); // all except auto; each is a codec without further keys
CodecName auto_name();
struct CodecKey {
    std::string_view name;
    std::vector<std::string_view> possible; // values, in words
};
std::vector<CodecKey> codec_keys();

// Whether the codec can encode `collective` on values of `type` combined with `op`: casts do every
// op, the others sum and avg, and integers travel unencoded. The error (invalid_argument) says why
// not.
Done check_codec(const Codec &codec, Collective collective, DataType type, RedOp op);

// Returns the grid: chunks, lanes and segments are cut at multiples of this many elements. For
// bucket=all the grid is 64, and a segment is a whole chunk.
size_t grain(const Codec &codec);
// Returns the grid for a call that uses both codecs.
size_t grain(const Codec &codec, const Codec &other);

// Returns the expected NMSE of one encode of Gaussian values of any variance (nu of the error
// prediction); 0 for none and for casts that do not narrow. Integrates numerically, which takes up
// to 2 ms: callers keep the result.
double unit_nmse(const Codec &codec, DataType type);

// The effect of encoding on a value as part of a sum, after Bussgang's theorem (1952): the decoded
// value is 1 - shrink times the value, plus noise that is not correlated with the value; the mean
// square of the decoded value is 1 + growth times the value's.
struct Loss {
    double shrink = 0, growth = 0;

    // The mean square of the difference, in units of the value's mean square.
    double nmse() const { return 2 * shrink + growth; }
    Loss followed_by(const Loss &next) const;
};

// Returns the loss of a sum of `summands` independent Gaussian values with mean zero, each of which
// is encoded `encodes` times on its way, on average. Fine codecs only add noise, and the noise of
// all encodes adds up. The part that `topk` drops and `onebit` averages away is not correlated with
// the rest, so the loss never exceeds the values: with nu for unit_nmse it is 1 - (1 - nu)^encodes.
// `terngrad` is right on average except for the values that it clips, and its noise is encoded
// again: the noise grows by a factor with each encode, up to that of a sum whose terms all have
// their largest values in one place. Calls unit_nmse.
Loss loss_of(const Codec &codec, DataType type, double encodes, double summands);
// Returns the loss of such a sum if one encode is known to lose `once`.
Loss repeated(const Codec &codec, const Loss &once, double encodes, double summands);

} // namespace qccl
