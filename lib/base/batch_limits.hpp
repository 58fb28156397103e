// How small messages between hosts go as one: a batch, in which an entry stands before each of
// them. The transport fills batches by these limits, the engine plans sends by them, and the
// planner counts by them. Pure; any thread.
#pragma once

#include <algorithm>
#include <cstdint>

namespace qccl {

// With its letter a batch fits into one frame of UCX's sockets, 8 KiB; for every other frame UCX
// would make a system call.
inline constexpr uint64_t most_batch_bytes = uint64_t{7} << 10;
inline constexpr uint64_t batch_entry_bytes = 16;

// How many messages of so many bytes each go as one; 1: each goes alone. Between hosts, a message
// costs the processors of both ends as much as they take to copy several kilobytes. Messages of
// which a batch holds only one go better alone, since the next is encoded while they are under way:
// `int8` of 64 KiB, 4.3 KB a message, takes the same time either way with 4 hosts at 1 Gbit/s,
// where `int4`, 2.4 KB a message, takes 0.9 of the time in batches.
constexpr uint64_t messages_per_batch(uint64_t bytes) {
    return std::max<uint64_t>(1, most_batch_bytes / (bytes + batch_entry_bytes));
}

} // namespace qccl
