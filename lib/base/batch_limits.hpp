// Limits of a batch: several small messages between hosts that travel as one message, with an entry
// before each of them. The transport fills batches by these limits, the engine plans sends by them,
// and the planner counts by them. Pure; any thread.
#pragma once

#include <algorithm>
#include <cstdint>

namespace qccl {

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
