// The table of kernels that every tier and every device provides. The engine calls the kernels of
// such a table; `kernels` has the tables (kernels/cpu/cpu_tiers.hpp). Any thread may call; no call
// blocks. All operands are plain memory. Sources and destinations must not overlap unless they are
// equal. On every tier the bytes are those of WIRE.md; the scalar reference is the definition.
#pragma once

#include "base/types.hpp"
#include "codec/chunk.hpp"
#include "codec/codec.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace qccl {

// Part of a chunk: elements [begin, begin + count) of its `whole` elements. The kernels' `payload`
// is where the sections of the whole chunk start. begin is a multiple of grain(codec); so is count,
// unless the range ends the chunk.
struct ChunkRange {
    const Codec *codec = nullptr;
    const PayloadLayout *layout =
        nullptr;                       // payload_layout(*codec, type, whole); the caller keeps it
    DataType type = DataType::float32; // the tensor's
    uint64_t whole = 0;
    uint64_t begin = 0;
    uint64_t count = 0;
    Noise noise{}; // with dither, of a chunk that is decoded: what its encoder has drawn

    // dummy: how many of the range's values lie in the payload; they are the range's first ones.
    uint64_t first_values() const { return std::clamp(layout->kept, begin, begin + count) - begin; }
};

// Returns the range that is a whole chunk. The caller keeps codec and layout.
inline ChunkRange whole_chunk(const Codec &codec, const PayloadLayout &layout, DataType type,
                              uint64_t count, Noise noise = {}) {
    return {.codec = &codec,
            .layout = &layout,
            .type = type,
            .whole = count,
            .begin = 0,
            .count = count,
            .noise = noise};
}

// An implementation of the kernels. The numbers are also the bits of the masks with which QCCL_TIER
// and the tests choose. `generic` is the vector code on emulated vectors of 128 bits, for every
// processor; a processor may lack sse4 and the tiers above it. The last tier that runs is the best.
enum class Tier : uint8_t { scalar, generic, sse4, avx2, avx512, neon, sve };
inline constexpr std::array<const char *, 7> tier_names{"scalar", "generic", "sse4", "avx2",
                                                        "avx512", "neon",    "sve"};
static_assert(tier_names.size() == static_cast<size_t>(Tier::sve) + 1);
constexpr const char *name(Tier tier) { return tier_names[static_cast<size_t>(tier)]; }
constexpr uint32_t tier_mask(Tier tier) { return 1U << static_cast<uint32_t>(tier); }

// What packing and unpacking need to work in. Its content means nothing between calls, and one
// thread at a time may use it.
struct PackScratch {
    static constexpr size_t symbols = 65536; // of a segment

    alignas(64) uint8_t streams[2][symbols];
    alignas(64) uint16_t words[symbols + 64]; // that an encoder writes
    alignas(64) uint32_t table[4096];
};

// `in` and `out` name the format of plain values: the tensor's type or its accumulator's type.
struct Kernels {
    Tier tier;

    void (*encode)(const ChunkRange &range, const Noise &noise, DataType in, const void *src,
                   std::byte *payload);
    void (*decode)(const ChunkRange &range, const std::byte *payload, DataType out, void *dst,
                   bool streams);
    // accumulator = accumulator op decoded; accumulators have the type accumulator_of(range.type).
    void (*decode_add)(const ChunkRange &range, RedOp op, const std::byte *payload,
                       void *accumulator);

    // accumulator = accumulator op value; avg adds here and divides in `divide`.
    void (*reduce)(RedOp op, DataType accumulator_type, void *accumulator, DataType in,
                   const void *src, size_t count);
    // Converts with one rounding; copies bits between equal types. `streams` requests stores that
    // bypass the cache, for a destination that is not read again soon.
    void (*copy)(DataType out, void *dst, DataType in, const void *src, size_t count, bool streams);
    // accumulator /= ranks, for avg: true division; integers truncate toward zero.
    void (*divide)(DataType accumulator_type, void *accumulator, size_t count, uint32_t ranks);
    // residual += (value - decoded) * factor; a residual that is not finite becomes 0. A velocity,
    // unless it is null, becomes 0 where decoded is not. All have the accumulator's type, which is
    // float32 or float64.
    void (*keep_error)(DataType accumulator_type, void *residual, const void *values,
                       const void *decoded, size_t count, uint32_t factor, void *velocity);
    // value += before * momentum, which is in thousandths. The velocity is the new value where it
    // is finite, else 0. All have the accumulator's type, as above.
    void (*add_velocity)(DataType accumulator_type, void *values, void *velocity,
                         const void *before, size_t count, uint32_t momentum);

    // Sums that are rounded once. `sums` are ExactBlocks (exact_sum.hpp) with room for `count`
    // sums, and values have a float type. begin_exact stores values as new sums and add_exact adds
    // values; both and round_exact must come from one table. round_exact rounds the sums to `out`;
    // if `ranks` is not 1, it rounds them to float64, divides and rounds the quotients. The kernels
    // of devices have nullptr here.
    void (*begin_exact)(DataType in, void *sums, const void *src, size_t count) = nullptr;
    void (*add_exact)(DataType in, void *sums, const void *src, size_t count) = nullptr;
    void (*round_exact)(DataType out, void *dst, const void *sums, size_t count,
                        uint32_t ranks) = nullptr;

    // Of the codec shared (shared_scales.hpp). Blocks of `block` values follow one another from the
    // first value on; the last one may be shorter. `greatest` and `scales` have a number for each.
    // The kernels of devices have nullptr here; KernelLauncher has passes of its own for GPUs.
    // greatest = max(greatest, the largest pattern of a magnitude in the block)
    void (*find_magnitudes)(uint32_t *greatest, const float *x, size_t count,
                            size_t block) = nullptr;
    // Values become integers, a number of steps each.
    void (*to_integers)(float *integers, const float *x, const uint16_t *scales, size_t count,
                        size_t block) = nullptr;
    // Sums of integers become sums of values, divided by `ranks` if that is not 1.
    void (*from_integers)(float *y, const float *sums, const uint16_t *scales, size_t count,
                          size_t block, uint32_t ranks) = nullptr;

    // Packs the payload of a whole chunk, which has whole.layout->bytes, of a codec with `packs`.
    // Returns the number of bytes, or 0 if they would be no fewer than the unpacked ones; `packed`
    // has room for so many as those. Processors alone pack and unpack; the kernels of devices have
    // nullptr here.
    size_t (*pack)(const ChunkRange &whole, const std::byte *payload, std::byte *packed,
                   PackScratch &scratch) = nullptr;
    // Restores the payload of a whole chunk. Returns false if no encoder writes such bytes; the
    // payload is then undefined. The payload that results must still pass check_payload.
    bool (*unpack)(const ChunkRange &whole, std::span<const std::byte> packed, std::byte *payload,
                   PackScratch &scratch) = nullptr;
};

} // namespace qccl
