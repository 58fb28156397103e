// The engine runs programs: it moves and computes real bytes as the steps say, in an order that
// their dependencies allow. Knows no algorithm, no planner and no C handle; waits only in the
// transport.
#pragma once

#include "base/result.hpp"
#include "device/device.hpp"
#include "engine/counters.hpp"
#include "engine/program.hpp"
#include "transport/transport.hpp"

#include <chrono>
#include <cstdint>

namespace qccl {

// What changes from call to call of one program.
struct Call {
    // As the C API has them; NULL where `count` is 0 or the rank gives or gets nothing. Equal where
    // the call is in place (reduce-scatter: recv == send + rank * count; all-gather the other way
    // round).
    const void *send = nullptr;
    void *recv = nullptr;
    uint64_t number = 0;     // of the call on the communicator, from 1; equal on all ranks
    uint64_t noise_seed = 0; // stochastic rounding; equal on all ranks
    uint64_t tag = 0;        // the caller's, shown in errors
    std::chrono::nanoseconds timeout{0}; // for live peers that do not come; 0 is never
};

struct EngineOptions {
    // Calls that touch more bytes store their results past the cache, which they would only flush.
    uint64_t streaming_bytes = uint64_t{16} << 20;
    bool binds = true; // false: the interpreter also runs what could run over lines (its twin)
};

class Engine {
public:
    // `transport` outlives the engine.
    Engine(Transport &transport, const Device &device, const EngineOptions &options)
        : transport_(transport), device_(device), options_(options) {}

    // Runs the call to its end; one thread at a time. Every rank runs programs compiled for the
    // same work in the same order. An error has failed the communicator on all ranks, and recv is
    // undefined.
    Done run(const Program &program, const Call &call);

    // Any thread, any time.
    Counts counts() const { return counters_.read(); }

private:
    Transport &transport_;
    const Device device_;
    const EngineOptions options_;
    Counters counters_;
};

} // namespace qccl
