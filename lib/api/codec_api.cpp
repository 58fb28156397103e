// C functions that create a codec, and encode and decode with it without a communicator. An encoded
// container is one chunk with its header and checksum.
#include "api/call/entry.hpp"

#include "api/assemble.hpp"
#include "base/settings.hpp"
#include "codec/chunk.hpp"
#include "codec/codec.hpp"
#include "comm/boundary.hpp"
#include "comm/comm_config.hpp"
#include "comm/streams.hpp"
#include "device/allowed_tiers.hpp"
#include "device/packed_chunk.hpp"

#include <memory>
#include <span>

#include <unistd.h>

namespace qccl {

static constinit CodecHandles codec_handles{{.tag = 0x51C3,
                                             .argument = "codec",
                                             .unknown = "no qcclCodecCreate made",
                                             .ended = "destroyed",
                                             .is_inherited = true}};

Result<CodecRef> take_codec(qcclCodec_t handle) { return codec_handles.refer(handle); }

Result<const Kernels *> usual_kernels() {
    QCCL_TRY(const Settings settings, read_settings(environ));
    QCCL_TRY(const uint32_t tiers, allowed_tiers(settings));
    return &implementations().best_kernels(tiers);
}

Result<qcclCodec_t> make_codec(const NamedCodec &codec) {
    QCCL_TRY(void *const made, codec_handles.add(std::make_shared<const NamedCodec>(codec)));
    return static_cast<qcclCodec_t>(made);
}

Done end_codec(qcclCodec_t handle) {
    QCCL_TRY(CodecRef ended, take_codec(handle));
    return ended.end();
}

bool is_codec(qcclCodec_t handle) { return codec_handles.is_alive(handle); }

namespace {

// What both directions need, already checked. On a stream it outlives the handle.
struct Container {
    Codec codec;
    const Kernels *kernels;
    DataType type;
    uint64_t count;
};

Result<Container> take_container(qcclCodec_t handle, size_t count, qcclDataType_t type) {
    QCCL_TRY(const CodecRef named, take_codec(handle));
    if (named->codec.is_auto())
        return invalid_argument(
            "codec is %s, which is chosen for a collective; values are encoded by "
            "themselves with a codec that has a name, as int8",
            spec(named->codec).c_str());
    if (named->codec.sums_exactly)
        return invalid_argument("codec is exact, which is how sums are rounded; values that are "
                                "encoded by themselves need a codec with a format, as int8");
    if (named->codec.shares_scales())
        return invalid_argument("codec is %s, whose scales ranks agree on in a call; values that "
                                "are encoded by themselves need a codec with a format, as int8",
                                spec(named->codec).c_str());
    if (named->codec.guard != 0)
        return invalid_argument(
            "codec is %s, and a guard is of collectives; values that are encoded by "
            "themselves need a codec without one",
            spec(named->codec).c_str());
    if (named->codec.owner != OwnerKeeps::decoded)
        return invalid_argument("codec is %s, and owner is of collectives; values that are encoded "
                                "by themselves need a codec without it",
                                spec(named->codec).c_str());
    QCCL_TRY(const DataType known, take_type(type));
    CodedValues values = coded_values(Collective::broadcast, known, RedOp::sum, count);
    if (named->codec.is_lossless()) values = {known, count};
    QCCL_TRY(check_type(named->codec, values.type));
    QCCL_TRY(check_count("count", count, known, 1));
    return Container{named->codec, named->kernels, values.type, values.count};
}

ChunkRange whole(const Container &container, const PayloadLayout &layout, Noise noise = {}) {
    return whole_chunk(container.codec, layout, container.type, container.count, noise);
}

// Memory for the unpacked chunk beside a container that may be packed.
struct Packing {
    explicit Packing(size_t unpacked_bytes)
        : unpacked(std::make_unique_for_overwrite<std::byte[]>(unpacked_bytes)) {}

    std::unique_ptr<std::byte[]> unpacked;
    PackScratch scratch;
};

// Returns nothing for codecs that do not pack. Streams get the memory with their work,
// because they cannot report that there is none.
std::shared_ptr<Packing> memory_for(const Container &container) {
    if (!container.codec.packs) return nullptr;
    return std::make_shared<Packing>(
        most_packed_bytes(container.codec, container.type, container.count));
}

// Encodes the chunk, without a checksum. `dst` has room for all of it.
void encode_unpacked(const Container &container, const void *src, std::byte *dst) {
    // There is no rank and no call here, so the noise is that of rank 0, its first encode, call 0.
    const ChunkInfo chunk{.type = container.type,
                          .count = container.count,
                          .noise_key = noise_key(container.codec.seed, 0, 0)};
    write_header(container.codec, chunk, dst);
    const PayloadLayout layout = payload_layout(container.codec, container.type, container.count);
    if (container.count > 0)
        container.kernels->encode(whole(container, layout), {.key = chunk.noise_key},
                                  container.type, src, dst + header_bytes);
}

// Writes the container and returns its size, which is that of `dst` without `packing`.
size_t encode(const Container &container, const void *src, std::span<std::byte> dst,
              Packing *packing) {
    size_t bytes = dst.size();
    encode_unpacked(container, src, packing ? packing->unpacked.get() : dst.data());
    if (packing)
        bytes = pack_chunk(*container.kernels, container.codec, container.type, container.count,
                           packing->unpacked.get(), dst.data(), packing->scratch);
    add_checksum(dst.first(bytes));
    return bytes;
}

// Decodes a chunk that has been accepted and is not packed.
void decode_unpacked(const Container &container, const std::byte *chunk, void *dst) {
    if (container.count == 0) return;
    const PayloadLayout layout = payload_layout(container.codec, container.type, container.count);
    container.kernels->decode(whole(container, layout, stated_noise({chunk, header_bytes})),
                              chunk + header_bytes, container.type, dst, false);
}

Done decode(const Container &container, std::span<const std::byte> src, void *dst,
            Packing *packing) {
    const std::byte *chunk = src.data();
    if (packing) {
        QCCL_TRY(unpack_chunk(*container.kernels, container.codec, container.type, container.count,
                              src, packing->unpacked.get(), packing->scratch));
        chunk = packing->unpacked.get();
    } else {
        QCCL_TRY(outcome(open_chunk(src, container.codec, container.type, container.count)));
    }
    QCCL_TRY(verify_checksum(src));
    decode_unpacked(container, chunk, dst);
    return {};
}

Done run(Stream *stream, std::function<Done()> work) {
    if (!stream) return work();
    stream->enqueue({.run = std::move(work)});
    return {};
}

} // namespace

} // namespace qccl

using namespace qccl;

qcclResult_t qcclCodecCreate(qcclCodec_t *codec_out, const char *spec) {
    return guarded([=]() -> Done {
        if (!codec_out) return invalid_argument("codec_out is NULL");
        if (!spec) return invalid_argument("spec is NULL");
        QCCL_TRY(const Codec codec, parse_codec(spec));
        QCCL_TRY(const Kernels *const kernels, usual_kernels());
        QCCL_TRY(*codec_out, make_codec({codec, kernels}));
        return {};
    });
}
QCCL_TWIN(qcclCodecCreate);

qcclResult_t qcclCodecDestroy(qcclCodec_t codec) {
    return guarded([=]() -> Done { return codec ? end_codec(codec) : Done(); });
}
QCCL_TWIN(qcclCodecDestroy);

qcclResult_t qcclCodecGetSpec(qcclCodec_t codec, char *buffer, size_t *bytes) {
    return guarded([=]() -> Done {
        QCCL_TRY(const CodecRef named, take_codec(codec));
        if (!bytes) return invalid_argument("bytes is NULL");
        return give_text(spec(named->codec), buffer, bytes);
    });
}
QCCL_TWIN(qcclCodecGetSpec);

qcclResult_t qcclCodecMaxEncodedBytes(qcclCodec_t codec, size_t count, qcclDataType_t type,
                                      size_t *bytes_out) {
    return guarded([=]() -> Done {
        QCCL_TRY(const Container container, take_container(codec, count, type));
        if (!bytes_out) return invalid_argument("bytes_out is NULL");
        *bytes_out = encoded_bytes(container.codec, container.type, container.count);
        return {};
    });
}
QCCL_TWIN(qcclCodecMaxEncodedBytes);

qcclResult_t qcclCodecEncode(qcclCodec_t codec, const void *src, size_t count, qcclDataType_t type,
                             void *dst, size_t capacity, size_t *written_out, qcclStream_t stream) {
    return guarded([=]() -> Done {
        QCCL_TRY(const StreamRef queue, take_stream(stream));
        QCCL_TRY(const Container container, take_container(codec, count, type));
        const size_t bytes = encoded_bytes(container.codec, container.type, container.count);
        const Buffer from{"src", src, container.count * type_bytes(container.type)};
        const Buffer to{"dst", dst, bytes};
        QCCL_TRY(check_pointer(from));
        QCCL_TRY(check_pointer(to));
        if (!written_out) return invalid_argument("written_out is NULL");
        if (capacity < bytes)
            return invalid_argument("capacity is %zu, but %zu values of %s with %s need %zu bytes",
                                    capacity, count, name(container.type),
                                    spec(container.codec).c_str(), bytes)
                .compared(static_cast<int64_t>(bytes), static_cast<int64_t>(capacity));
        QCCL_TRY(check_apart(from, to));
        const std::span<std::byte> room(static_cast<std::byte *>(dst), bytes);
        if (!queue.get()) {
            *written_out = encode(container, src, room, memory_for(container).get());
            return {};
        }
        // The caller gets the number now, and that of an unpacked container is known.
        queue.get()->enqueue({.run = [=]() -> Done {
            encode(container, src, room, nullptr);
            return {};
        }});
        *written_out = bytes;
        return {};
    });
}
QCCL_TWIN(qcclCodecEncode);

qcclResult_t qcclCodecDecode(qcclCodec_t codec, const void *src, size_t bytes, void *dst,
                             size_t count, qcclDataType_t type, qcclStream_t stream) {
    return guarded([=]() -> Done {
        QCCL_TRY(const StreamRef queue, take_stream(stream));
        QCCL_TRY(const Container container, take_container(codec, count, type));
        const Buffer from{"src", src, bytes};
        const Buffer to{"dst", dst, container.count * type_bytes(container.type)};
        QCCL_TRY(check_pointer(from));
        QCCL_TRY(check_pointer(to));
        QCCL_TRY(check_apart(from, to));
        return run(queue.get(), [=, packing = memory_for(container)] {
            return decode(container, {static_cast<const std::byte *>(src), bytes}, dst,
                          packing.get());
        });
    });
}
QCCL_TWIN(qcclCodecDecode);
