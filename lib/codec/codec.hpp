// A codec as data: its parameters, the sizes of its output, the calls it supports, and the noise of
// its stochastic rounding. WIRE.md defines the bytes, and kernels/ writes them. A Budget says what
// a codec may cost, for a caller who names no codec: "nmse=1e-3,bits=4.5". Used by planner, engine,
// kernels and C API. Pure; any thread may call.
//
// The noise that a chunk's stochastic rounding draws (WIRE.md, Noise) is selected by a key, mixed
// from the seed, the encoding rank and the encode's ordinal, and by the position of the draws;
// kernels/codec/code_rounding.hpp generates the draws. error_model.cpp defines unit_nmse and the
// losses, codec.cpp everything else.
#pragma once

#include "base/result.hpp"
#include "base/types.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace qccl {

// ---- Budgets

struct Budget {
    double nmse = 0;   // the result's NMSE is at most this; 0: no limit
    uint32_t bits = 0; // thousandths of a bit that a value may take on the wire; 0: no limit
    uint32_t from = 0; // bit set of the CodecIds that may be chosen; 0: all that have a bound

    explicit operator bool() const { return nmse != 0 || bits != 0; }
    double most_bits() const { return bits / 1000.0; }
    bool allows(unsigned codec_id) const { return from == 0 || (from >> codec_id & 1) != 0; }
    bool operator==(const Budget &) const = default;
};

// The values that each key takes, in words.
inline constexpr std::string_view budget_nmse_words = "a number above 0 and below 1, as 1e-3",
                                  budget_bits_words = "1 to 64, with at most three decimals",
                                  budget_from_words =
                                      "int, minmax, nvfp4, bf16, several with + between them",
                                  guard_words =
                                      "nmse: and a number above 0 and below 1, as nmse:1e-3";

// Each parses the value of one key into `budget`. The error (invalid_argument) says what is
// possible.
Done read_budget_nmse(Budget &budget, std::string_view text);
Done read_budget_bits(Budget &budget, std::string_view text);
Done read_budget_from(Budget &budget, std::string_view text);
// Parses the value of the key guard, such as "nmse:1e-3", and stores its number in `nmse`.
Done read_guard(double &nmse, std::string_view text);
std::string guard_text(double nmse);
// Returns the keys that are set: "nmse=0.001,bits=4.5".
std::string budget_text(const Budget &budget);

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

// ---- Noise of stochastic rounding

// The noise of one chunk; nearest rounding does not use it.
struct Noise {
    uint64_t key = 0;
    uint64_t call = 0;
    uint64_t first_index = 0; // of the chunk's first element in the caller's tensor
};

// A bijection of 64 bits: one step of SplitMix64 (Steele, Lea and Flood, OOPSLA'14).
constexpr uint64_t splitmix64(uint64_t x) {
    x += 0x9E3779B97F4A7C15ULL;
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9ULL;
    x = (x ^ x >> 27) * 0x94D049BB133111EBULL;
    return x ^ x >> 31;
}

// Returns the noise key of an encode. `ordinal` counts the encode steps of `rank` in the unshaped
// schedule. Both steps are bijections: under one seed no two (rank, ordinal) share a key.
constexpr uint64_t noise_key(uint64_t seed, uint32_t rank, uint32_t ordinal) {
    return splitmix64(splitmix64(seed) ^ (uint64_t{rank} << 32 | ordinal));
}

} // namespace qccl
