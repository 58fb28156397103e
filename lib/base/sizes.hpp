// Sizes, for code that cuts vectors, files and messages into pieces: rounding up, ranges of bytes
// in a memory block or a file, the encoded size of a chunk (the codecs fill an Encoding in
// codec/chunk.hpp, the schedules' shapes read it), and the limits of a batch. A batch is several
// small messages between hosts that travel as one message, with an entry before each of them: the
// transport fills batches by these limits, the engine plans sends by them, and the planner counts
// by them. Pure; any thread may call.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>

namespace qccl {

// ---- Rounding

constexpr uint64_t round_up(uint64_t value, uint64_t step) {
    return (value + step - 1) / step * step;
}

// ---- Ranges of bytes

struct ByteRange {
    size_t offset = 0, bytes = 0;
};

// ---- Sizes of encoded chunks

struct Encoding {
    size_t type_bytes = 0;           // of an unencoded value
    bool needs_whole_chunks = false; // a bucket is a whole chunk: there is only one segment
    // Returns the most bytes that a chunk of up to `count` values takes, header included.
    std::function<size_t(uint64_t count)> most_bytes;
};

// ---- Limits of a batch

// A batch and its message header fit into one frame of UCX's sockets, 8 KiB. UCX makes another
// system call for every further frame.
inline constexpr uint64_t most_batch_bytes = uint64_t{7} << 10;
inline constexpr uint64_t batch_entry_bytes = 16;

// Returns how many messages of `bytes` bytes each travel in one batch; 1: each message travels
// alone. Between hosts, a message costs the processors of both ends as much as copying several
// kilobytes. If a batch holds only one such message, the message travels alone, because the rank
// encodes the next message while this one is in flight: `int8` of 64 KiB, 4.3 KB a message, takes
// the same time either way with 4 hosts at 1 Gbit/s, where `int4`, 2.4 KB a message, takes 0.9 of
// the time in batches.
constexpr uint64_t messages_per_batch(uint64_t bytes) {
    return std::max<uint64_t>(1, most_batch_bytes / (bytes + batch_entry_bytes));
}

} // namespace qccl
