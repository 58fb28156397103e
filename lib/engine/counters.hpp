// Counts what the engine has done so far: calls, bytes, and where the time went. Only the thread
// that runs calls writes the counters; any thread may read them, without blocking.
#pragma once

#include "base/ticks.hpp"

#include <atomic>
#include <cstdint>

namespace qccl {

struct Counts {
    uint64_t calls = 0;
    uint64_t raw_bytes = 0;  // values passed to the calls
    uint64_t wire_bytes = 0; // sent, headers included, once per receiver
    uint64_t lent_bytes = 0; // part of wire_bytes: read by peers in the caller's memory
    uint64_t encode_ns = 0;
    uint64_t copy_ns = 0; // copying, reducing and decoding
    uint64_t wait_ns = 0;
    uint64_t wire_ns = 0;      // sending and receiving messages
    uint64_t network_ns = 0;   // part of wait_ns and wire_ns: moving bytes between hosts
    uint64_t device_bytes = 0; // read and written by a GPU's kernels
};

// A counter with one writer: an addition is a load and a store, not a locked instruction.
class Counter {
public:
    void add(uint64_t amount) {
        value_.store(value_.load(std::memory_order_relaxed) + amount, std::memory_order_relaxed);
    }
    uint64_t get() const { return value_.load(std::memory_order_relaxed); }

private:
    std::atomic<uint64_t> value_{0};
};

class Counters {
public:
    Counters();

    Counter calls, raw_bytes, wire_bytes, lent_bytes, device_bytes;
    Counter encode_ticks, copy_ticks, wait_ticks, wire_ticks;

    // Returns all counts except network_ns, which the transport counts. Ticks become nanoseconds by
    // the progress of both clocks since the counters were made.
    Counts read() const;

private:
    const uint64_t first_ticks_;
    const uint64_t first_ns_;
};

} // namespace qccl
