// A program: a schedule bound to one collective on so many values of one type with one codec, with
// everything worked out that can be before bytes move. Never changes, and serves every call of the
// same shape. Knows no algorithm but as a name to show, no transport and no clock.
#pragma once

#include "base/result.hpp"
#include "base/types.hpp"
#include "codec/chunk.hpp"
#include "codec/codec.hpp"
#include "schedule/schedule.hpp"
#include "transport/transport.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace qccl {

// What is to be done. All but `team.rank` must be equal on all ranks.
struct Work {
    Collective collective = Collective::all_reduce;
    DataType type = DataType::float32;
    RedOp op = RedOp::sum; // collectives that do not reduce ignore it
    Codec codec;           // already checked with check_codec
    uint64_t count = 0;    // as the C API means it: per rank for reduce-scatter and all-gather
    Team team;
    const char *algorithm = ""; // shown, and compared between ranks
};

// How it is cut and what room there is; equal on all ranks.
struct Cut {
    size_t outbox_bytes = size_t{16} << 20; // the transport's outbox
    uint32_t slots = 1024;                  // the transport's slots
    size_t line_bytes = size_t{32} << 10;   // the transport's line; 0: never bind to lines
    size_t segment_bytes = size_t{128}
                           << 10; // unencoded bytes of a chunk that one instance works on
    uint32_t lanes = 4;           // instances in flight
    bool seals = false;           // chunks carry a CRC32C, which receivers check
    bool joins = true;            // false: every step runs over its whole segment (the slow twin)
};

// What the engine issues at once: a send, a receive, or steps that compute on one chunk and run
// tile by tile together.
struct Task {
    enum class Kind : uint8_t { send, recv, work };

    Kind kind = Kind::work;
    uint32_t first = 0, last = 0;          // the steps [first, last) of Program::schedule
    uint32_t waits = 0;                    // tasks that must be done before this one
    uint32_t next_begin = 0, next_end = 0; // Program::next: the tasks that wait for this one
    uint32_t peer = 0;                     // whom to name when this task keeps the rank waiting
};

// Where an accumulator lies: in a tile that is used again for every tile of its task, where it
// never leaves the L1 cache, or in memory for a whole segment.
struct AccumulatorHome {
    bool is_tile = false;
    uint32_t buffer = 0;
};

// A part of the caller's tensor: the elements [begin, begin + count).
struct Extent {
    uint64_t begin = 0;
    uint64_t count = 0;
};

// A message of the lines (bound.hpp): the bytes at `offset` in the line of `rank`.
struct LineChunk {
    uint32_t rank = 0;
    uint64_t offset = 0;
    uint64_t bytes = 0;
};

struct Program {
    Work work;
    Cut cut;
    CallDescriptor descriptor; // all but the call's number and tag
    Schedule schedule;         // placed, joined; the engine takes its steps by Task

    std::vector<Task> tasks; // in the schedule's order
    std::vector<uint32_t> next;
    std::vector<Extent> chunks;
    std::vector<uint32_t> own_slot;  // of each wire that this rank encodes, its slot within a lane
    std::vector<uint32_t> wire_uses; // of each step that fills a wire, how many steps read it
    std::vector<AccumulatorHome> homes; // of each accumulator

    uint64_t segment_count = 0; // elements; the same cut in every chunk
    uint32_t instances = 1;     // segments of the longest chunk
    uint32_t lanes = 1;
    uint32_t own_slots = 0; // per lane
    uint64_t slot_bytes = 0;
    uint64_t tile_count = 0;                        // elements
    uint32_t tile_buffers = 0, segment_buffers = 0; // accumulators: per rank, per lane

    bool is_bound = false; // runs over the lines, without tasks

    uint64_t raw_bytes = 0;  // of values that this rank gives to the call
    uint64_t wire_bytes = 0; // that this rank sends in a call, headers included, once per receiver

    // The part of `chunk` that `instance` works on.
    Extent segment(uint32_t chunk, uint32_t instance) const {
        const Extent &whole = chunks[chunk];
        const uint64_t skipped = std::min<uint64_t>(whole.count, instance * segment_count);
        return {whole.begin + skipped, std::min(segment_count, whole.count - skipped)};
    }
};

// Places the codec in an author's schedule, cuts it, derives its dependencies, and says where its
// values live. An error (invalid_argument) says what does not fit.
Result<Program> compile(const Schedule &author, const Work &work, const Cut &cut);

} // namespace qccl
