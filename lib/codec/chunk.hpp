// The encoded chunk: a header and a payload, byte for byte as WIRE.md defines them, and its
// checksum, a CRC32C (Castagnoli, RFC 3720 appendix B.4). Bytes from outside must pass `open_chunk`
// before they are used. Used by the planner, the engine and the C API. Pure; any thread may call.
#pragma once

#include "base/sizes.hpp"
#include "codec/payload.hpp"

#include <cstddef>
#include <cstdint>
#include <span>

namespace qccl {

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
// `bytes`. Only check_seal verifies a checksum.
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

// Writes a CRC32C of the whole chunk into its header. qcclCodecEncode uses this for its stand-alone
// container.
void seal_chunk(std::span<std::byte> chunk);
// Refuses (damaged_data) a chunk without a checksum, and one whose bytes do not match the checksum.
Done check_seal(std::span<const std::byte> chunk);

} // namespace qccl
