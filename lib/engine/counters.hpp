// What the engine has done so far: calls, bytes, and where the time went. Written by the one thread
// that runs calls, read by any.
#pragma once

#include "base/ticks.hpp"

#include <atomic>
#include <cstdint>

namespace qccl {

struct Counts {
    uint64_t calls = 0;
    uint64_t raw_bytes = 0;  // values given to the calls
    uint64_t wire_bytes = 0; // sent, headers included, once per receiver
    uint64_t lent_bytes = 0; // of these, that peers read in the caller's memory
    uint64_t encode_ns = 0;
    uint64_t copy_ns = 0; // copying, reducing and decoding
    uint64_t wait_ns = 0;
    uint64_t wire_ns = 0;      // handing over and taking
    uint64_t network_ns = 0;   // of the two, working for other hosts
    uint64_t device_bytes = 0; // that a GPU's kernels have read and written
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

    // But for the network's, which the transport has. Ticks become ns by what both clocks have
    // shown since the counters were made.
    Counts read() const;

private:
    const uint64_t first_ticks_;
    const uint64_t first_ns_;
};

} // namespace qccl
