// Operands of kernel launches: plain values, and chunks that kernels read or write. KernelLauncher
// makes batches of them. Pure; any thread may call.
#pragma once

#include "base/types.hpp"
#include "codec/chunk.hpp"
#include "codec/codec.hpp"
#include "device/batch.hpp"
#include "device/kernels.hpp"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace qccl::launched {

inline Operand plain(DataType type, const void *values) {
    // The const_cast is safe: the caller may write a sink's memory, and a source's is only read.
    return {.type = type, .at = static_cast<std::byte *>(const_cast<void *>(values))};
}

// Returns the logarithm of a power of two; 0 of other numbers.
inline uint8_t log2_of(uint32_t number) {
    return std::has_single_bit(number) ? static_cast<uint8_t>(std::countr_zero(number)) : 0;
}

// Returns the operand of a range of dummy. Values that its payload does not have are zeros.
inline Operand first_values(const ChunkRange &range, const std::byte *payload) {
    return {.codec = range.codec->id,
            .type = range.type,
            .at = const_cast<std::byte *>(payload) + range.begin * type_bytes(range.type),
            .kept = range.first_values()};
}

// Returns the noise of a range of a chunk.
inline Noise noise_from(const ChunkRange &range, Noise noise) {
    noise.first_index += range.begin;
    return noise;
}

// Returns the operand of a range's coded values, from the first one on.
inline Operand coded(const ChunkRange &range, const std::byte *payload) {
    const Codec &codec = *range.codec;
    const PayloadLayout &layout = *range.layout;
    if (codec.row().kind == CodecKind::dummy) return first_values(range, payload);
    const uint64_t end = layout.raw != 0 ? layout.raw : layout.bytes;
    std::array<uint64_t, chunk_parts> sections{
        layout.plane8, layout.plane4, layout.plane2, layout.plane1,
        layout.digits, layout.scales, layout.bases,  end};
    if (codec.row().is_sparse)
        sections = {layout.page_counts, layout.indices, layout.kept_values, 0, 0, 0, 0, end};
    Operand operand{.codec = codec.id,
                    .bits = codec.bits,
                    .is_stochastic = codec.rounding == Rounding::stochastic,
                    .is_dithered = codec.dithers(),
                    .rounds_up = codec.scaling == Scaling::ceil,
                    .bucket_shift = log2_of(codec.bucket),
                    .is_linf = codec.norm == BucketNorm::linf,
                    .is_exponential = codec.levels == Levels::exponential,
                    .rotation_log2 = log2_of(codec.rotation),
                    .type = range.type,
                    .bucket = codec.bucket,
                    .clip = codec.row().kind == CodecKind::tbq
                                ? std::bit_cast<uint32_t>(codec.threshold)
                                : codec.clip,
                    .at = const_cast<std::byte *>(payload),
                    .coded = layout.coded,
                    .kept = layout.kept,
                    .begin = range.begin,
                    .section = sections};
    return operand;
}

// Returns the operand of a range whose values are decoded.
inline Operand coded_source(const ChunkRange &range, const std::byte *payload) {
    Operand source = coded(range, payload);
    if (range.codec->dithers()) source.set_noise(noise_from(range, range.noise));
    return source;
}

// Stores each gap of a chunk with the section behind it.
inline void set_gaps(Operand &sink, const Codec &codec, const PayloadLayout &layout) {
    for (const Gap &gap : gaps(codec, layout)) {
        if (gap.bytes == 0) continue;
        for (size_t i = 0; i < chunk_parts; i++)
            if (sink.section[i] == gap.start + gap.bytes)
                sink.gap[i] = static_cast<uint8_t>(gap.bytes);
    }
}

// Returns the approximate bytes of `count` values. Codes and scales lie before the values without
// codes.
inline uint64_t bytes_of(const Operand &operand, uint64_t count) {
    if (operand.is_plain()) return operand.numbers_of(count) * type_bytes(operand.type);
    if (operand.codec == CodecId::dummy)
        return std::min(operand.kept, count) * type_bytes(operand.type);
    if (operand.coded == 0) return 0;
    const auto end = operand.section[static_cast<size_t>(ChunkPart::raw)];
    return static_cast<uint64_t>(static_cast<double>(end) / static_cast<double>(operand.coded) *
                                 static_cast<double>(count));
}

// Returns how many values of the range have codes; those values come first.
inline uint64_t coded_count(const ChunkRange &range) {
    return std::clamp(range.layout->coded, range.begin, range.begin + range.count) - range.begin;
}

// Returns where the values without codes lie: all of the range, or those behind the coded values.
inline const std::byte *plain_start(const ChunkRange &range, const std::byte *payload) {
    if (range.codec->is_plain())
        return payload + range.begin * type_bytes(range.codec->plain_type(range.type));
    return payload + range.layout->raw;
}

} // namespace qccl::launched
