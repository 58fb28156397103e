// The encoded chunk: header and sections, byte for byte as WIRE.md defines them. Every byte that
// comes from outside is hostile until `open_chunk` has accepted it.
#pragma once

#include "codec/codec.hpp"

#include <optional>
#include <span>

namespace qccl {

// What identifies a chunk beside its codec; all of it travels in the header.
struct ChunkInfo {
    DataType type = DataType::float32;
    uint64_t count = 0;       // elements
    uint64_t first_index = 0; // of the first element in the caller's tensor
    uint64_t noise_key = 0;   // mixed from seed, rank and ordinal of the encode (philox.hpp)
    uint64_t call = 0;        // number of the call, the noise counter's upper half

    bool operator==(const ChunkInfo &) const = default;
};

// Where the sections of a payload lie, in bytes from its start; every section begins at a multiple
// of 16. Codes lie in planes of 8, 4, 2 and 1 bits; the scales (or minima and units) follow.
struct PayloadLayout {
    size_t plane8 = 0, plane4 = 0, plane2 = 0, plane1 = 0;
    size_t scales = 0;
    size_t raw = 0; // minmax with skip_incomplete: the values of the incomplete bucket
    size_t bytes = 0;
};

inline constexpr size_t header_bytes = 64;

PayloadLayout payload_layout(const Codec &codec, DataType type, uint64_t count);
// Header and payload; what a buffer must hold, and for these codecs exactly what is written.
size_t encoded_bytes(const Codec &codec, DataType type, uint64_t count);

// Writes the header for a payload of payload_layout(...).bytes behind it.
void write_header(const Codec &codec, const ChunkInfo &chunk, std::byte *dst);

struct OpenChunk {
    Codec codec; // as far as it is on the wire: no seed, no min_bytes
    ChunkInfo chunk;
    std::span<const std::byte> payload;
};
// Refuses with damaged_data whatever no encoder writes; reads nothing behind `bytes`.
Result<OpenChunk> open_chunk(std::span<const std::byte> bytes);
// The same, and refuses a chunk that is not what the schedule says comes here.
Result<OpenChunk> open_chunk(std::span<const std::byte> bytes, const Codec &codec, DataType type, uint64_t count);

// The stand-alone container of qcclCodecEncode: a chunk whose header carries a CRC32C of it all.
void seal_chunk(std::span<std::byte> chunk);
Done check_seal(std::span<const std::byte> chunk);

} // namespace qccl
