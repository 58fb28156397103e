// The encoded chunk: a header and a payload, byte for byte as WIRE.md defines them. Every byte that
// comes from outside is hostile until `open_chunk` has accepted it.
#pragma once

#include "base/encoding.hpp"
#include "codec/payload.hpp"

#include <span>

namespace qccl {

// What identifies a chunk beside its codec; all of it travels in the header.
struct ChunkInfo {
    DataType type = DataType::float32;
    uint64_t count = 0;       // elements
    uint64_t first_index = 0; // of the first element in the caller's tensor
    uint64_t noise_key = 0;   // mixed from seed, rank and ordinal of the encode (noise.hpp)
    uint64_t call = 0;        // number of the call, the noise counter's upper half
    // Of a call with a guard, as nmse_word has it: the largest error that its sender has heard of.
    uint16_t sampled_nmse = 0;

    bool operator==(const ChunkInfo &) const = default;
};

inline constexpr size_t header_bytes = 64;

// Header and payload; what a buffer must hold, and for these codecs exactly what is written.
size_t encoded_bytes(const Codec &codec, DataType type, uint64_t count);

// The most that a chunk of up to so many values takes: where incomplete buckets travel as values, a
// shorter one may be the larger.
size_t most_encoded_bytes(const Codec &codec, DataType type, uint64_t count);
Encoding encoding_of(const Codec &codec, DataType type);
// Of what may be encoded by either.
Encoding encoding_of(const Codec &codec, const Codec &other, DataType type);

// An NMSE as headers have it: a bf16, rounded up; of two words the larger one is the larger error.
uint16_t nmse_word(double nmse);
double nmse_of(uint16_t word);
// Of a chunk that has been accepted.
uint16_t sampled_nmse(std::span<const std::byte> header);

// Writes the header for a payload of payload_layout(...).bytes behind it. With nearest rounding the
// noise key and the call are written as 0: such bytes do not depend on who encodes them when.
void write_header(const Codec &codec, const ChunkInfo &chunk, std::byte *dst);

struct OpenChunk {
    Codec codec; // as far as it is on the wire: no seed, no min_bytes, the usual clip
    ChunkInfo chunk;
    std::span<const std::byte> payload;
};
// Refuses with damaged_data what no encoder writes: header, length, gaps, padding codes and scales.
// `bytes` is the chunk exactly. A seal is looked at by check_seal alone.
Result<OpenChunk> open_chunk(std::span<const std::byte> bytes);
// The same, and refuses a chunk that is not what the schedule says comes here.
Result<OpenChunk> open_chunk(std::span<const std::byte> bytes, const Codec &codec, DataType type,
                             uint64_t count);
// The same, where the payload does not lie behind the header.
Result<OpenChunk> open_chunk(std::span<const std::byte> header, std::span<const std::byte> payload,
                             const Codec &codec, DataType type, uint64_t count);
// The same of the header alone: `payload_bytes` lie out of sight, in a GPU's memory, and nothing is
// known of their padding and their scales. Kernels decode any, within their bounds.
Result<OpenChunk> open_header(std::span<const std::byte> header, uint64_t payload_bytes,
                              const Codec &codec, DataType type, uint64_t count);

// The stand-alone container of qcclCodecEncode: a chunk whose header carries a CRC32C of it all.
void seal_chunk(std::span<std::byte> chunk);
// Refuses a chunk without a seal, and one that is not what was sealed.
Done check_seal(std::span<const std::byte> chunk);

} // namespace qccl
