// The engine runs programs: it moves and computes real bytes as the steps say, in an order that
// their dependencies allow. Knows no algorithm, no planner and no C handle; waits only in the
// transport.
#pragma once

#include "base/result.hpp"
#include "device/device.hpp"
#include "engine/counters.hpp"
#include "engine/gpu_lines.hpp"
#include "engine/lanes.hpp"
#include "engine/program.hpp"
#include "engine/step_trace.hpp"
#include "engine/store_choice.hpp"
#include "engine/tiles.hpp"
#include "transport/transport.hpp"

#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace qccl {

// What changes from call to call of one program.
struct Call {
    // As the C API has them; NULL where `count` is 0 or the rank gives or gets nothing. Equal where
    // the call is in place (reduce-scatter: recv == send + rank * count; all-gather the other way
    // round).
    const void *send = nullptr;
    void *recv = nullptr;
    // Of the call on the communicator, from 1 and without gaps; equal on all ranks.
    uint64_t number = 0;
    uint64_t captured = 0;   // as its descriptor has it
    uint64_t noise_seed = 0; // stochastic rounding; equal on all ranks
    uint64_t tag = 0;        // the caller's, shown in errors
    uint64_t queued = 0;     // ticks when it was given to a stream, for traces; 0: to none
    std::chrono::nanoseconds timeout{0}; // for live peers that do not come; 0 is never
    // Of a call with a guard, as nmse_word has it: what this rank has found in its own values
    // before, and the largest that any rank has when the call has succeeded. Such calls run over no
    // lines. Null: of a call without.
    uint16_t *sampled_nmse = nullptr;
};

// Whether what is received lies, or part of it, where what is sent does.
bool is_in_place(const Program &program, const Call &call);

struct EngineOptions {
    // Calls on vectors of more bytes, those of all ranks together, store their results past the
    // cache, which they would only flush. With inputs and results a last-level cache of 32 MiB is
    // full (Zen 4: at half as much the way through the cache takes two thirds of the time, at twice
    // as much both take the same or longer).
    uint64_t streaming_bytes = uint64_t{16} << 20;
    // Memory of a GPU, as large as the transport's outbox, that all ranks reach and have shown
    // (Transport::use_device_memory): payloads lie in it. Else they lie in the outbox.
    std::span<std::byte> device_outbox{};
    // Likewise; programs are bound to them.
    DeviceLines device_lines{};
    // Hears of every call; outlives the engine. Null: nobody does.
    CallTracer *tracer = nullptr;
};

// What calls run in, kept from one to the next.
struct EngineMemory {
    DeviceMemory tiles;    // accumulators of the tile at hand
    DeviceMemory scratch;  // the payload of the tile at hand; on a GPU what launches leave
    DeviceMemory segments; // accumulators that live longer; for a bound call its only one
    std::vector<Lane> lanes;
    std::vector<TileStep> steps; // of the task at hand
    std::vector<const std::byte *> lines;
    StoreChoices stores;
    // Fingerprints of programs that all ranks have begun together once: of many, the latest.
    std::array<uint64_t, 64> agreed{};
    // How the outbox and the inbox are cut: a slot's bytes may be given another place only while
    // nobody reads any.
    uint64_t slot_bytes = 0;
    uint32_t used_slots = 0, used_rooms = 0;
    uint64_t last_call = 0;              // that has begun
    std::span<std::byte> device_outbox;  // as EngineOptions has it
    std::unique_ptr<GpuLines> gpu_lines; // made by the first call over them
    // On a GPU; last, so that nothing is under way when the others end.
    std::unique_ptr<GpuLanes> gpu;
};

// Streams, and memory for what launches leave, for so many lanes of the program.
Done prepare_gpu(EngineMemory &memory, const Device &device, const Program &program,
                 uint32_t lanes);

class Engine {
public:
    // `transport` outlives the engine.
    Engine(Transport &transport, const Device &device, const EngineOptions &options)
        : transport_(transport), device_(device), options_(options) {
        if (device.gpu) memory_.gpu = std::make_unique<GpuLanes>(device.gpu);
        memory_.device_outbox = options.device_outbox;
    }

    // Runs the call to its end; one thread at a time. Every rank runs programs compiled for the
    // same work and cut in the same order. After an error recv is undefined, and the caller fails
    // the transport: the others wait for this rank.
    Done run(const Program &program, const Call &call);

    // Until no peer reads this rank's device's memory, or the communicator has failed. Between
    // calls.
    Done await_readers();

    // Any thread, any time.
    Counts counts() const {
        Counts counts = counters_.read();
        counts.network_ns = static_cast<uint64_t>(transport_.network_time().count());
        return counts;
    }

private:
    template <class Run> Done on_gpu(Run run);
    Done run_traced(const Program &program, const Call &call);
    template <class Trace> Done run_with(const Program &program, const Call &call, Trace &trace);
    template <class Trace> Done run_tasks(const Program &program, const Call &call, Trace &trace);
    template <class Trace> Done run_lines(const Program &program, const Call &call, Trace &trace);
    Done run_gpu_lines(const Program &program, const BoundCall &call, StepTrace *trace);

    Transport &transport_;
    const Device device_;
    const EngineOptions options_;
    EngineMemory memory_;
    Counters counters_;
};

} // namespace qccl
