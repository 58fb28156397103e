// A Chunking says how a call is cut into segments, lanes and eager slots, and how much memory there
// is for them. Communicator creation fills it in; the compiler of programs reads it. Pure
// functions; any thread.
//
// Three passes make operations of a placed schedule: place_accumulators decides where each
// accumulator lives while an instance runs, in a tile or in a segment buffer;
// find_zero_copy_sources finds the values that a rank sends and that also lie in the caller's
// buffers, so that peers can read them there (zero copy) instead of in the outbox; translate turns
// steps into operations on operands without addresses. The compiler of programs uses them. Pure
// functions of one rank's schedule; any thread.
#pragma once

#include "base/result.hpp"
#include "base/settings.hpp"
#include "engine/compile/ops.hpp"
#include "schedule/lower.hpp"
#include "schedule/schedule.hpp"
#include "schedule/shape.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace qccl {

// ---- Chunking

// Limits and targets for cutting a call. Equal on all ranks unless a member says otherwise.
struct Chunking {
    // The transport's outbox: its size, and how many slots it may be cut into.
    size_t outbox_bytes = size_t{16} << 20;
    uint32_t slots = 1024;
    // The transport's inbox, which holds messages from other hosts in as many slots; 0: there are
    // no other hosts.
    size_t inbox_bytes = 0;
    // Unencoded bytes of a chunk that one instance works on, and instances in flight.
    size_t segment_bytes = size_t{128} << 10;
    uint32_t lanes = 4;
    // Number of instances, whatever their size; 0: segment_bytes decides.
    uint64_t parts = 0;
    // Size of an eager slot, in the transport or in GPU memory, and how many eager exchanges a call
    // may have. Set eager_exchanges only as high as the algorithm supports. Calls that fit then run
    // over the eager slots. 0 bytes: all calls use the mailboxes.
    size_t eager_slot_bytes = 0;
    uint32_t eager_exchanges = 1;
    bool has_checksums = false; // chunks carry a CRC32C, which receivers check
    // From this vector size on, peers read the caller's buffers in place where they can. May differ
    // between ranks.
    uint64_t zero_copy_bytes = uint64_t{16} << 10;
    // The same threshold for calls in which each rank's sum overwrites what its peers have read.
    // While the vectors stay in the caches, reading in place then costs more than a copy (1.6 times
    // as much for 1 MiB, between two cores of a Zen 4 that share a cache). May differ between
    // ranks.
    uint64_t overwriting_bytes = uint64_t{32} << 20;
    bool whole_tiles = false; // the device has no cache to keep tiles in; may differ between ranks
    bool joins = true;        // false: each step runs over its whole segment (slow reference)
};

// Returns a number of slots that is enough for every algorithm at this number of ranks, up to 4096.
// Bruck's all-to-all holds the most messages at a time: log2(P) / 2 for each rank.
constexpr uint32_t slots_for(uint32_t ranks) {
    constexpr uint32_t least = 1024, for_each_rank = 6;
    return std::max(least, for_each_rank * ranks);
}

// Returns the chunking that `settings` ask for. `has_hosts`: the ranks are on several hosts.
inline Chunking chunking_by(const Settings &settings, uint32_t ranks, bool has_hosts) {
    // A message between hosts costs so much that segments larger than the L2 cache likes pay. Of
    // the sizes from 256 to 512 KiB this one was the fastest or near it, for lossless sums of 64
    // MiB over TCP: 2 hosts without a limit 32 ms (41 with 512 KiB, 46 with 256), at 10 Gbit/s 58
    // (62, 58), 4 hosts on 2 cores 169 (184, 173).
    constexpr size_t network_segment_bytes = size_t{384} << 10;
    Chunking cut;
    cut.slots = slots_for(ranks);
    if (has_hosts) cut.segment_bytes = network_segment_bytes;
    if (settings.segment_bytes) cut.segment_bytes = *settings.segment_bytes;
    if (settings.arena_bytes) cut.outbox_bytes = *settings.arena_bytes;
    if (settings.lanes)
        cut.lanes = static_cast<uint32_t>(std::min<uint64_t>(*settings.lanes, UINT32_MAX));
    cut.has_checksums = settings.checksum;
    return cut;
}

// Adapts the chunking to ranks on GPUs: few segments for few ranks, each long enough to hide kernel
// launches. The launch of a kernel costs more than its work on a small segment.
inline Chunking chunking_for_gpus(const Settings &settings, Chunking cut) {
    constexpr size_t gpu_segment = size_t{4} << 20, gpu_arena = size_t{64} << 20;
    if (!settings.segment_bytes) cut.segment_bytes = gpu_segment;
    if (!settings.arena_bytes) cut.outbox_bytes = gpu_arena;
    return cut;
}

// Ranks on GPUs that reach each other's memory: bytes of an eager slot, and eager exchanges per
// call. Calls larger than that gain more from being cut into segments than from leaving the host
// out.
inline constexpr size_t gpu_eager_bytes = size_t{1} << 20;
inline constexpr uint32_t gpu_eager_exchanges = 2;

// Applies what one call asks for.
inline Chunking chunking_with(const Pieces &pieces, Chunking cut) {
    if (pieces.segment_bytes != 0) cut.segment_bytes = pieces.segment_bytes;
    if (pieces.lanes != 0) cut.lanes = pieces.lanes;
    cut.parts = pieces.parts;
    return cut;
}

inline ShapeLimits limits_of(const Chunking &cut) {
    return {.arena_bytes = cut.outbox_bytes,
            .slots = cut.slots,
            .segment_bytes = cut.segment_bytes,
            .parts = cut.parts,
            .max_lanes = cut.lanes};
}

// ---- Where accumulators lie

// The run `later` must not begin before the run `earlier` is done.
struct Order {
    uint32_t earlier = 0, later = 0; // numbers of runs
    auto operator<=>(const Order &) const = default;
};

struct AccumulatorPlacement {
    std::vector<OperandRef> of; // by chunk: where its accumulator lives
    uint32_t tile_buffers = 0;
    uint32_t segment_buffers = 0;
    std::vector<Order> orders; // dependencies that come from sharing segment buffers
};

// Decides where all accumulators lie. One that lives within one run gets a tile, if `joins` is set;
// one that lives longer gets a buffer as long as a segment, which accumulators that do not overlap
// share. `runs` must be the runs of `fused.schedule`.
AccumulatorPlacement place_accumulators(const Fused &fused, std::span<const StepRun> runs,
                                        bool joins);

// ---- Zero copy

// Where peers can read what one encode writes, if the encode only copies values.
struct ZeroCopySource {
    std::optional<uint32_t> input; // chunk of the input that holds the value
    // Peers may read the input also if the output lies in the same memory. A run that writes the
    // output there has to wait for the readers.
    bool also_in_place = false;
    // Chunk of the output that the same run stores the value in, and that no other step writes.
    std::optional<uint32_t> output;
    uint32_t readers = 0; // runs of this rank that read the wire slot, sends included
};

// Returns the result for each encode, by its Step::ordinal. The schedule must be placed; the engine
// issues each of `runs` as a whole.
std::vector<ZeroCopySource> find_zero_copy_sources(const Schedule &schedule,
                                                   std::span<const StepRun> runs);

// ---- Steps to operations

struct Translation {
    const Schedule *schedule = nullptr;
    std::span<const OperandRef> accumulators; // by chunk: where its accumulator lives
    DataType type = DataType::float32;
    // Payloads are plain values: in the outermost tier, and below.
    bool is_lossless = true, is_inner_lossless = true;
    uint32_t rank = 0;    // the rank that has the schedule
    bool divides = false; // divide a finished sum by the number of ranks (avg)
    // Accumulators hold exact sums, which are rounded where they are read.
    bool sums_exactly = false;
    Feedback feedback = Feedback::none;
    // Where products of inputs and of the call's factor lie, one input at a time; nothing: inputs
    // are used as they are.
    std::optional<OperandRef> product{};

    // A rank with a residual adds it to its inputs, which then have the accumulator's type.
    DataType input_type() const { return feedback == Feedback::none ? type : accumulator_of(type); }
};

// By chunk: returns true for outputs that some step reads. All other outputs may be stored past the
// cache.
std::vector<bool> read_outputs(const Schedule &schedule);

// Appends the operations of one run. `outputs_read` is read_outputs(*translation.schedule). The
// error (internal_error) says what is wrong with the schedule.
Done translate(const Translation &translation, StepRun run, const std::vector<bool> &outputs_read,
               std::vector<Op> &ops);

} // namespace qccl
