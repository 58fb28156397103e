// The encoded chunk: a header and a payload, byte for byte as WIRE.md defines them, and its
// checksum, a CRC32C (Castagnoli, RFC 3720 appendix B.4). Bytes from outside must pass `open_chunk`
// before they are used. The sections of a payload say where codes, scales and skipped values lie,
// and a check says whether bytes from outside are valid. Used by the planner, the engine, the
// kernels and the C API. chunk.cpp defines chunks, payload.cpp payloads. Pure; any thread may call.
#pragma once

#include "base/types.hpp"
#include "codec/codec.hpp"

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

namespace qccl {

// Offsets of a payload's sections, in bytes from its start; every section begins at a multiple of
// 16. Codes lie in planes of 8, 4, 2 and 1 bits; the scales (or minima and units) follow.
//
// A group is 32 consecutive values; byte i of a group's piece of a plane holds
//   plane8  32 bytes  value i
//   plane4  16 bytes  value i low, value i + 16 high
//   plane2   8 bytes  values i, i + 8, i + 16, i + 24 from the low bits up
//   plane1   4 bytes  values 8 i ... 8 i + 7 from the low bit up
// A code of b bits is split from its low bits up over the planes that make b: 7 = 4 + 2 + 1,
// 10 = 8 + 2.
// The last group is padded with codes 0; gaps before sections are zero. With `none` and casts the
// payload is the values alone.
//
// In a terngrad bucket of c values, byte i of ternary_bytes(c) = m holds the digits of values i,
// i + m, ..., i + 4 m, in base 3 from the lowest up; digits without a value are 0.
struct PayloadLayout {
    size_t plane8 = 0, plane4 = 0, plane2 = 0, plane1 = 0;
    // integer: a bf16 per block; minmax: fp32 minimum and unit per bucket; mx: E8M0 per block;
    // nvfp4: E4M3 per block; fp8 with a block: a bf16 per block; onebit: two fp32 means per bucket,
    // of codes 0 and 1; terngrad and norm: an fp32 per bucket; bound with rel: an fp32, the step,
    // behind the values.
    size_t scales = 0;
    size_t digits = 0; // terngrad, instead of planes
    size_t bases = 0;  // nvfp4: an fp32 per bucket, the unit of its scales
    size_t raw = 0;    // minmax with skip_incomplete: the unencoded values of the incomplete bucket
    // topk: the number of values that each page keeps, their indices in the page, and the unencoded
    // values themselves. dummy: only these values, the chunk's first ones.
    size_t page_counts = 0, indices = 0, kept_values = 0;
    uint64_t kept = 0;
    size_t bytes = 0;   // exact size, to the end of the last section
    uint64_t coded = 0; // values that have codes: all except those in `raw`; 0 for none and casts
    uint64_t scale_count = 0; // blocks or buckets
    uint64_t base_count = 0;  // buckets of blocks
};

inline constexpr uint64_t group_values = 32;
// Whether vector code can process blocks of `int` of this size: whole groups, or blocks of which a
// group holds several.
constexpr bool is_vector_block(uint32_t block) {
    return block % group_values == 0 || block == 8 || block == 16;
}

// The planes that a code may be split over, widest first. A code of b bits uses those whose bits
// add up to b.
struct PlanePart {
    unsigned bits; // bits of a code that lie in the plane
    size_t PayloadLayout::*start;

    constexpr size_t group_bytes() const { return group_values / 8 * bits; }
};
inline constexpr PlanePart plane_parts[] = {
    {8, &PayloadLayout::plane8},
    {4, &PayloadLayout::plane4},
    {2, &PayloadLayout::plane2},
    {1, &PayloadLayout::plane1},
};

// norm: the number of magnitudes above zero that codes of so many bits stand for.
constexpr uint32_t norm_levels(uint8_t bits) { return (1U << (bits - 1)) - 1; }
// The bit patterns of the largest and of the least norm that an encoder writes: none of the values
// under the largest decodes to an infinity, and the step of the least is a normal number.
inline constexpr int32_t largest_norm_bits = 0x7F7FFFFE; // 2^128 - 2^105
constexpr int32_t least_norm_bits(const Codec &codec) {
    const bool is_uniform = codec.levels == Levels::uniform;
    return std::bit_cast<int32_t>(0x1p-126F *
                                  static_cast<float>(is_uniform ? norm_levels(codec.bits) : 1));
}

// fp8 with a block: the bit patterns of the least scale that is not zero, and of the largest, under
// which the largest element is finite. That element is 1.75 times a power of two.
inline constexpr uint16_t least_scale_bits = 0x0080; // 2^-126
constexpr uint16_t largest_scale_bits(int highest) {
    constexpr unsigned fraction = 18; // 1 + 18 / 128 is just below 2 / 1.75
    return static_cast<uint16_t>(static_cast<unsigned>(254 - highest) << 7 | fraction);
}

// bound, pointwise: the least number of fraction bits with which rounding to nearest keeps it.
constexpr int kept_fraction_bits(float bound) {
    const auto exponent = static_cast<int>(std::bit_cast<uint32_t>(bound) >> 23) - 127;
    return -exponent - 1; // half of the last place is 2^exponent of the power of two below
}
// bound: its bits as headers and kernels have them; the sign says that it is pointwise.
inline constexpr uint32_t pointwise_bit = 0x80000000;
inline uint32_t bound_bits(const Codec &codec) {
    return std::bit_cast<uint32_t>(codec.bound) | (codec.is_pointwise ? pointwise_bit : 0);
}

// topk: an index within a page has 16 bits, the page's number of kept values 32.
inline constexpr uint64_t topk_page_values = 65536;

// Five digits to a byte, and whole words.
inline constexpr uint64_t ternary_step_values = 20;
inline constexpr size_t ternary_step_bytes = 4;
constexpr size_t ternary_bytes(uint64_t values) {
    return (values + ternary_step_values - 1) / ternary_step_values * ternary_step_bytes;
}

// A section for the values that have codes. It consists of units (groups, blocks or buckets) of
// `unit_values` values, and one unit for the rest at the end. A unit has `step_bytes` bytes for
// every `step_values` values.
struct PayloadSection {
    size_t PayloadLayout::*start = nullptr;
    uint64_t unit_values = 1, step_values = 1;
    size_t step_bytes = 0;

    uint64_t units(uint64_t values) const {
        return values / unit_values + (values % unit_values != 0 ? 1 : 0);
    }
    size_t bytes(uint64_t values) const {
        const auto steps = [this](uint64_t of) { return (of + step_values - 1) / step_values; };
        return step_bytes *
               (values / unit_values * steps(unit_values) + steps(values % unit_values));
    }
};
// The sections that the codec has, in their order in the payload, for a chunk with `coded` values
// that have codes.
class PayloadSections {
public:
    PayloadSections(const Codec &codec, uint64_t coded);
    const PayloadSection *begin() const { return sections_.data(); }
    const PayloadSection *end() const { return sections_.data() + count_; }

private:
    void add(const PayloadSection &section) { sections_[count_++] = section; }
    void add(size_t PayloadLayout::*start, uint64_t unit_values, size_t unit_bytes) {
        add({start, unit_values, unit_values, unit_bytes});
    }

    std::array<PayloadSection, 5> sections_; // a code has three planes at most
    size_t count_ = 0;
};

// Returns the layout; exact for every count up to most_layout_values, beyond what an address space
// holds.
inline constexpr uint64_t most_layout_values = uint64_t{1} << 56;
PayloadLayout payload_layout(const Codec &codec, DataType type, uint64_t count);

// The bytes between two sections, at most 15. The encoder of a chunk's end sets them to zero.
struct Gap {
    size_t start = 0, bytes = 0;
};
std::array<Gap, 5> gaps(const Codec &codec, const PayloadLayout &layout);
void clear_gaps(const Codec &codec, const PayloadLayout &layout, std::byte *payload);

// Returns damaged_data unless gaps, padding codes and scales are such as an encoder writes.
// `payload` has layout.bytes.
Done check_payload(const Codec &codec, const PayloadLayout &layout,
                   std::span<const std::byte> payload);

// ---- Checksum

// Returns the checksum of `bytes`. `crc` is the checksum of the bytes before them; 0 at the start.
uint32_t crc32c(std::span<const std::byte> bytes, uint32_t crc = 0);

// ---- Chunks

// The properties of a chunk besides its codec; the header carries all of them.
struct ChunkInfo {
    DataType type = DataType::float32;
    uint64_t count = 0;       // elements
    uint64_t first_index = 0; // of the first element in the caller's tensor
    uint64_t noise_key = 0;   // mixed from seed, rank and ordinal of the encode (codec.hpp)
    uint64_t call = 0;        // number of the call, the noise counter's upper half
    // In a call with a guard: the largest sampled NMSE that the sender knows of, as nmse_word
    // encodes it.
    uint16_t sampled_nmse = 0;

    Noise noise() const { return {.key = noise_key, .call = call, .first_index = first_index}; }
    bool operator==(const ChunkInfo &) const = default;
};

inline constexpr size_t header_bytes = 64;

// Returns the size of header and payload: the size that a buffer must have, and for these codecs
// exactly the size that is written.
size_t encoded_bytes(const Codec &codec, DataType type, uint64_t count);

// Returns the largest size of a chunk of up to `count` values. If the values of an incomplete
// bucket travel unencoded, a shorter chunk can be the larger one.
size_t most_encoded_bytes(const Codec &codec, DataType type, uint64_t count);
Encoding encoding_of(const Codec &codec, DataType type);
// Returns the encoding of a vector of which each chunk may be encoded by either codec.
Encoding encoding_of(const Codec &codec, const Codec &other, DataType type);

// Encodes an NMSE for a header: a bf16, rounded up. Of two words, the larger one is the larger
// error.
uint16_t nmse_word(double nmse);
double nmse_of(uint16_t word);
// Reads the word from the header of a chunk that has been accepted.
uint16_t sampled_nmse(std::span<const std::byte> header);
// Reads the noise of the encoder from the header of a chunk that has been accepted or written here.
Noise stated_noise(std::span<const std::byte> header);
// Returns the count that a header states, unchecked; nothing if the bytes are too few for a header.
std::optional<uint64_t> stated_count(std::span<const std::byte> bytes);

// Writes the header of a chunk to `dst`; a payload of payload_layout(...).bytes follows the header.
// With nearest rounding the noise key and the call are written as 0, so that the bytes do not
// depend on the rank that encodes them or on the call.
void write_header(const Codec &codec, const ChunkInfo &chunk, std::byte *dst);

struct OpenChunk {
    Codec codec; // as the wire carries it: no seed, no min_bytes, the usual clip
    ChunkInfo chunk;
    std::span<const std::byte> payload;
};
// Opens a chunk: checks header, length, gaps, padding codes and scales, and returns damaged_data
// for bytes that no encoder writes. `bytes` is exactly the chunk; the result's payload points into
// `bytes`. Only verify_checksum looks at a checksum.
Result<OpenChunk> open_chunk(std::span<const std::byte> bytes);
// Opens a chunk as above, and also refuses it if its codec, type or count differs from what the
// schedule expects.
Result<OpenChunk> open_chunk(std::span<const std::byte> bytes, const Codec &codec, DataType type,
                             uint64_t count);
// Opens a chunk whose payload does not lie behind its header, with the same checks.
Result<OpenChunk> open_chunk(std::span<const std::byte> header, std::span<const std::byte> payload,
                             const Codec &codec, DataType type, uint64_t count);
// Opens a chunk by its header alone: the `payload_bytes` of the payload lie in a GPU's memory, so
// their padding and scales are not checked. Kernels decode any such bytes within their bounds.
Result<OpenChunk> open_header(std::span<const std::byte> header, uint64_t payload_bytes,
                              const Codec &codec, DataType type, uint64_t count);

// ---- Packed chunks
//
// A codec with `packs` sends its chunks packed if that makes their payload smaller, and unpacked
// otherwise: so the length of a chunk says which it is. Only lib/device/packed_chunk.hpp makes
// packed chunks, and unpacks them; all other code handles unpacked chunks.

// What the header of a chunk says that may be packed.
struct PackedChunk {
    Codec codec;
    ChunkInfo chunk;
    bool is_packed; // its payload is shorter than the layout's
};
// Opens a chunk by its header, packed or not: checks everything except the payload, and that codec,
// type and count are those that the schedule expects. Codecs without `packs` are opened as
// open_header does.
Result<PackedChunk> open_packed(std::span<const std::byte> header, uint64_t payload_bytes,
                                const Codec &codec, DataType type, uint64_t count);
// Sets the length of the payload that the header states.
void set_payload_bytes(std::byte *header, uint64_t bytes);

// ---- Seals

// Writes a CRC32C of the whole chunk into its header. qcclCodecEncode uses this for its stand-alone
// container.
void add_checksum(std::span<std::byte> chunk);
// Takes the checksum and its flag out of a header.
void drop_checksum(std::byte *header);
// Refuses (damaged_data) a chunk without a checksum, and one whose bytes do not match the checksum.
Done verify_checksum(std::span<const std::byte> chunk);

} // namespace qccl
