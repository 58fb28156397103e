// Tells a forked child from the process that made a handle, with one load. Every process has an
// epoch, which lies in a page that the kernel hands to children zeroed. Used by the handle table;
// any thread may call it, and nothing blocks.
#pragma once

#include "base/result.hpp"

#include <atomic>
#include <cstdint>

namespace qccl {

namespace fork_detector {
// Points to a zero until this process or an ancestor has mapped the page.
extern constinit std::atomic<std::atomic<uint64_t> *> epoch_word;
} // namespace fork_detector

// Returns 0 in a process that has made no handle, and otherwise a number that no ancestor of the
// process had.
inline uint64_t current_epoch() {
    return fork_detector::epoch_word.load(std::memory_order_acquire)
        ->load(std::memory_order_relaxed);
}
// The same for a process that makes a handle: never 0. An error means that the page cannot be
// mapped.
Result<uint64_t> begin_epoch();

// The error for a child that uses a handle of its parent; `what` names the argument.
inline Error refuse_child(const char *what) {
    return Error::make(Code::invalid_usage,
                       "%s belongs to the parent process; after fork, make communicators and "
                       "streams of your own (codecs may be shared)",
                       what);
}

} // namespace qccl
