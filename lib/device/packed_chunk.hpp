// Packs chunks and unpacks them. Codecs with `packs` send their chunks packed, because that makes
// most of them smaller; all other code encodes, decodes, combines and checks unpacked chunks. So a
// rank packs what it has encoded before it sends it, forwards packed chunks as they are, and
// unpacks a copy before it decodes. A packed chunk has a header and 1 to payload_layout(...).bytes
// bytes of payload. A chunk that packing does not make smaller is sent unpacked, which its length
// says. WIRE.md, "Packed payloads", defines the bytes; all tiers write the same.
//
// Used by the engine and the C API. Any thread may call, with a scratch that no other thread uses
// meanwhile; nothing blocks or allocates. Operands must not overlap.
#pragma once

#include "base/result.hpp"
#include "codec/chunk.hpp"
#include "device/kernels.hpp"

#include <cstddef>
#include <cstdint>
#include <span>

namespace qccl {

// Returns the size of header and payload that a packed chunk has at most: that of the unpacked one.
inline size_t most_packed_bytes(const Codec &codec, DataType type, uint64_t count) {
    return encoded_bytes(codec, type, count);
}

// Packs a whole chunk, header included. `packed` has room for most_packed_bytes. Returns the size
// of the chunk that is to be sent from there, which is a copy of the unpacked one if packing makes
// it no smaller. A checksum of the unpacked chunk is left out; add_checksum makes that of the
// result.
size_t pack_chunk(const Kernels &kernels, const Codec &codec, DataType type, uint64_t count,
                  const std::byte *unpacked, std::byte *packed, PackScratch &scratch);

// Restores the unpacked chunk, byte for byte but without a checksum, in the most_packed_bytes at
// `unpacked`. `packed` is exactly the chunk that came. Returns damaged_data for bytes that no
// encoder writes or that are not of this codec, type and count; `unpacked` is then undefined. The
// result has passed the checks of open_chunk, but verify_checksum alone verifies a checksum, that
// of `packed`.
Done unpack_chunk(const Kernels &kernels, const Codec &codec, DataType type, uint64_t count,
                  std::span<const std::byte> packed, std::byte *unpacked, PackScratch &scratch);

// The same for a payload that does not lie behind its header: `header` has been accepted by
// open_packed, or is one that write_header wrote.
size_t pack_payload(const Kernels &kernels, const Codec &codec, DataType type, uint64_t count,
                    const std::byte *unpacked_payload, std::byte *packed_payload,
                    PackScratch &scratch);
Done unpack_payload(const Kernels &kernels, const Codec &codec, DataType type, uint64_t count,
                    std::span<const std::byte> packed_payload, std::byte *unpacked_payload,
                    PackScratch &scratch);

} // namespace qccl
