// Messages that may go to their receiver as one: those of a rank to one peer between which the
// rank, if it did its steps in order, only computes. Pure; any thread.
#pragma once

#include "schedule/schedule.hpp"

#include <cstdint>
#include <vector>

namespace qccl {

// Between hosts, a message costs the processors of both ends as much as they take to copy several
// kilobytes. So messages of at most so many bytes are batched. Larger ones would rather be under
// way while the next is encoded: `int8` of 64 KiB, 4.3 KB a message, takes the same time either way
// with 4 hosts at 1 Gbit/s, where `int4`, 2.4 KB a message, takes 0.9 of the time in batches.
inline constexpr uint64_t most_batched_bytes = 3584;

// By step: whether it sends to, or receives from, the peer of the message before it, and nothing
// but computing comes between them.
std::vector<bool> find_followers(const Schedule &schedule);

} // namespace qccl
