// How a collective is cut into pieces, and what room there is for them. Knows neither what is cut
// nor what carries it.
#pragma once

#include "base/settings.hpp"
#include "schedule/shape.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace qccl {

// Equal on all ranks.
struct Cut {
    // Of the transport: its outbox, and how many slots that may be cut into.
    size_t outbox_bytes = size_t{16} << 20;
    uint32_t slots = 1024;
    // Of the transport: where what comes from other hosts lies, in as many slots; 0: nothing does.
    size_t inbox_bytes = 0;
    // Unencoded bytes of a chunk that an instance works on, and instances in flight.
    size_t segment_bytes = size_t{128} << 10;
    uint32_t lanes = 4;
    // 0, or how many instances there shall be, whatever their size.
    uint64_t parts = 0;
    // Bytes of a line, the transport's or of GPUs' memory, and how many exchanges of lines a call
    // may have. Give them only for algorithms that so many exchanges can carry. Then calls that fit
    // run over the lines. 0: over the mailboxes alone.
    size_t line_bytes = 0;
    uint32_t line_exchanges = 1;
    bool seals = false; // chunks carry a CRC32C, which receivers check
    // Calls on vectors of at least so many bytes let peers read the caller's buffers in place where
    // they can. Each rank may have its own idea of it.
    uint64_t lending_bytes = uint64_t{64} << 10;
    // Likewise where each rank's sum is written over what its peers have read. That costs more than
    // a copy as long as the vectors stay in the caches (1.6 times as much for 1 MiB, between two
    // cores of a Zen 4 that share one).
    uint64_t overwriting_bytes = uint64_t{32} << 20;
    bool whole_tiles = false; // what computes has no cache to keep tiles in; each rank its own
    bool joins = true; // false: every step runs over its whole segment (the slow twin of tiles)
};

// Slots that every algorithm finds enough of, whatever the number of ranks: of halving, which holds
// the most, a rank has up to 2.94 messages for each rank at a time.
constexpr uint32_t slots_for(uint32_t ranks) {
    constexpr uint32_t least = 1024, for_each_rank = 4;
    return std::max(least, for_each_rank * ranks);
}

// As the settings want it, where ranks are on one host or on several.
inline Cut cut_by(const Settings &settings, uint32_t ranks, bool has_hosts) {
    // Between hosts a message costs so much that larger segments than the L2 cache likes pay. Of
    // 256 to 512 KiB this size was the fastest or near it, lossless sums of 64 MiB over TCP: 2
    // hosts without a limit 32 ms (41 with 512 KiB, 46 with 256), at 10 Gbit/s 58 (62, 58), 4 hosts
    // on 2 cores 169 (184, 173).
    constexpr size_t network_segment_bytes = size_t{384} << 10;
    Cut cut;
    cut.slots = slots_for(ranks);
    if (has_hosts) cut.segment_bytes = network_segment_bytes;
    if (settings.segment_bytes) cut.segment_bytes = *settings.segment_bytes;
    if (settings.arena_bytes) cut.outbox_bytes = *settings.arena_bytes;
    if (settings.lanes)
        cut.lanes = static_cast<uint32_t>(std::min<uint64_t>(*settings.lanes, UINT32_MAX));
    cut.seals = settings.checksum;
    return cut;
}

// Where GPUs take part: a few segments for a few ranks, each long enough to hide launches, which
// cost more than what they do with small ones.
inline Cut cut_for_gpus(const Settings &settings, Cut cut) {
    constexpr size_t gpu_segment = size_t{4} << 20, gpu_arena = size_t{64} << 20;
    if (!settings.segment_bytes) cut.segment_bytes = gpu_segment;
    if (!settings.arena_bytes) cut.outbox_bytes = gpu_arena;
    return cut;
}

// Of ranks on GPUs that reach each other's memory: bytes of an eager slot, and how many exchanges
// of slots a call may have. Larger calls gain more by being cut into segments than by having the
// host left out.
inline constexpr size_t gpu_eager_bytes = size_t{1} << 20;
inline constexpr uint32_t gpu_eager_exchanges = 2;

// As one call wants it.
inline Cut cut_into(const Pieces &pieces, Cut cut) {
    if (pieces.segment_bytes != 0) cut.segment_bytes = pieces.segment_bytes;
    if (pieces.lanes != 0) cut.lanes = pieces.lanes;
    cut.parts = pieces.parts;
    return cut;
}

inline ShapeLimits limits_of(const Cut &cut) {
    return {.arena_bytes = cut.outbox_bytes,
            .slots = cut.slots,
            .segment_bytes = cut.segment_bytes,
            .parts = cut.parts,
            .max_lanes = cut.lanes};
}

} // namespace qccl
