// Packs and unpacks whole chunks with the kernels of a tier, and rewrites their headers.
#include "device/packed_chunk.hpp"

#include <algorithm>
#include <cstring>

namespace qccl {

size_t pack_payload(const Kernels &kernels, const Codec &codec, DataType type, uint64_t count,
                    const std::byte *unpacked_payload, std::byte *packed_payload,
                    PackScratch &scratch) {
    const PayloadLayout layout = payload_layout(codec, type, count);
    if (layout.bytes == 0) return 0;
    const size_t packed = codec.packs ? kernels.pack(whole_chunk(codec, layout, type, count),
                                                     unpacked_payload, packed_payload, scratch)
                                      : 0;
    if (packed != 0) return packed;
    std::memcpy(packed_payload, unpacked_payload, layout.bytes);
    return layout.bytes;
}

size_t pack_chunk(const Kernels &kernels, const Codec &codec, DataType type, uint64_t count,
                  const std::byte *unpacked, std::byte *packed, PackScratch &scratch) {
    const size_t payload = pack_payload(kernels, codec, type, count, unpacked + header_bytes,
                                        packed + header_bytes, scratch);
    std::memcpy(packed, unpacked, header_bytes);
    drop_checksum(packed);
    set_payload_bytes(packed, payload);
    return header_bytes + payload;
}

Done unpack_payload(const Kernels &kernels, const Codec &codec, DataType type, uint64_t count,
                    std::span<const std::byte> packed_payload, std::byte *unpacked_payload,
                    PackScratch &scratch) {
    const PayloadLayout layout = payload_layout(codec, type, count);
    if (packed_payload.size() > layout.bytes)
        return Error::make(Code::damaged_data,
                           "chunk: a packed payload is longer than an unpacked one");
    if (packed_payload.size() == layout.bytes) {
        if (layout.bytes != 0) std::memcpy(unpacked_payload, packed_payload.data(), layout.bytes);
    } else if (!codec.packs || !kernels.unpack(whole_chunk(codec, layout, type, count),
                                               packed_payload, unpacked_payload, scratch)) {
        return Error::make(Code::damaged_data,
                           "chunk: a packed payload is none that an encoder writes");
    }
    return check_payload(codec, layout, {unpacked_payload, layout.bytes});
}

Done unpack_chunk(const Kernels &kernels, const Codec &codec, DataType type, uint64_t count,
                  std::span<const std::byte> packed, std::byte *unpacked, PackScratch &scratch) {
    const size_t payload = packed.size() - std::min(packed.size(), header_bytes);
    QCCL_TRY(const PackedChunk open, open_packed(packed, payload, codec, type, count));
    QCCL_TRY(unpack_payload(kernels, open.codec, type, count, packed.last(payload),
                            unpacked + header_bytes, scratch));
    std::memcpy(unpacked, packed.data(), header_bytes);
    drop_checksum(unpacked);
    set_payload_bytes(unpacked, payload_layout(open.codec, type, count).bytes);
    return {};
}

} // namespace qccl
