// The engine runs programs: it moves and computes the bytes that a program's steps name, in an
// order that their dependencies allow. Communicators use it for every call, on one thread at a
// time. A call blocks only in the transport, which detects failures. The counters say what the
// engine has done so far: calls, bytes, and where the time went. Only the thread that runs calls
// writes the counters; any thread may read them, without blocking.
#pragma once

#include "base/clock.hpp"
#include "base/result.hpp"
#include "base/sizes.hpp"
#include "device/device.hpp"
#include "engine/compile/custom_op.hpp"
#include "engine/compile/ops.hpp"
#include "engine/compile/program.hpp"
#include "engine/gpu/gpu_factors.hpp"
#include "engine/run/gpu_fast_path.hpp"
#include "engine/run/pipeline_lane.hpp"
#include "engine/run/step_trace.hpp"
#include "engine/run/unpacked_chunks.hpp"
#include "memory/large_calls.hpp"
#include "transport/transport.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace qccl {

// ---- Counters

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

    Counts &operator+=(const Counts &other) {
        for (const auto field :
             {&Counts::calls, &Counts::raw_bytes, &Counts::wire_bytes, &Counts::lent_bytes,
              &Counts::encode_ns, &Counts::copy_ns, &Counts::wait_ns, &Counts::wire_ns,
              &Counts::network_ns, &Counts::device_bytes})
            this->*field += other.*field;
        return *this;
    }
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

// The same for a time in ticks.
class TickCounter : public Counter {
public:
    // Returns the time in nanoseconds, which is never less than before: a tick becomes known better
    // with time, and may turn out to be shorter.
    uint64_t ns(double ns_per_tick) const {
        const auto known = static_cast<uint64_t>(static_cast<double>(get()) * ns_per_tick);
        uint64_t told = told_ns_.load(std::memory_order_relaxed);
        while (told < known &&
               !told_ns_.compare_exchange_weak(told, known, std::memory_order_relaxed)) {}
        return std::max(told, known);
    }

private:
    mutable std::atomic<uint64_t> told_ns_{0};
};

class Counters {
public:
    Counters();

    Counter calls, raw_bytes, wire_bytes, lent_bytes, device_bytes;
    TickCounter encode_ticks, copy_ticks, wait_ticks, wire_ticks;

    // Returns all counts except network_ns, which the transport counts. Ticks become nanoseconds by
    // the progress of both clocks since the counters were made.
    Counts read() const;

private:
    const uint64_t first_ticks_;
    const uint64_t first_ns_;
};

// ---- Engine

// One of several calls that run as one: elements [begin, begin + count) of the vector, or of each
// rank's part of it, lie in the buffers of this one.
struct CallPart {
    const std::byte *send = nullptr;
    std::byte *recv = nullptr;
    uint64_t begin = 0, count = 0;
};

// Returns the bytes of memory of a residual of so many bytes: whole words, which the device zeroes.
constexpr size_t residual_room(size_t bytes) { return round_up(bytes, sizeof(uint64_t)); }

// What a call of a program with feedback has besides (WIRE.md, "State"). Both arrays have a value
// of the accumulator's type for each of the caller's inputs, and lie in the device's memory.
struct CallFeedback {
    const std::byte *owed = nullptr; // is added to the inputs
    std::byte *residual = nullptr;   // becomes what this call has lost; undefined after an error
    uint64_t call = 0;               // the number by which the call draws its noise
    // Of a state with momentum: so many thousandths of the velocity are added to the inputs. Both
    // arrays are followed by velocities, as many bytes behind the value of the same element.
    uint32_t momentum = 0;
    size_t velocity = 0;
};

// The values that change between calls of one program.
struct Call {
    // Buffers, as in the C API; NULL where `count` is 0 or the rank gives or gets nothing. In-place
    // calls pass the same memory twice (reduce-scatter, scatter: recv == send + rank * count;
    // all-gather, gather: send == recv + rank * count; other collectives: send == recv).
    const void *send = nullptr;
    void *recv = nullptr;
    // The vector lies in the buffers of these calls, in this order and without gaps; `send` and
    // `recv` are those of the first one. Only for lossless programs that do not take the fast path.
    std::span<const CallPart> parts{};
    // Of calls that run as one, and of all layers of the call that one belongs to: compared between
    // ranks. 0: none is.
    uint32_t counts_hash = 0;
    // Number of the call on the communicator, from 1 and without gaps; equal on all ranks.
    uint64_t number = 0;
    uint64_t captured = 0; // number of the captured call, as in CallDescriptor
    // How many calls before this one ran as parts of others, and how many more calls come before
    // it for the caller. Noise counts them, so that it does not depend on which calls are fused and
    // in what order layers run.
    uint64_t fused_before = 0;
    uint64_t noise_seed = 0; // stochastic rounding; equal on all ranks
    uint64_t tag = 0;        // the caller's, shown in errors
    uint64_t queued = 0;     // ticks when the call was given to a stream, for traces; 0: to none
    std::chrono::nanoseconds timeout{0}; // for peers that live but do not come; 0: no limit
    // Set for calls with a guard, in the format of nmse_word. In: the error that this rank has
    // found in its own values. Out, if the call succeeds: the largest error of all ranks. Such
    // calls never use the fast path. Null: the call has no guard.
    uint16_t *sampled_nmse = nullptr;
    const CustomOp *op = nullptr; // if the work's operation is one that the program has made
    const CallFeedback *feedback = nullptr; // of a program with feedback
};

// The number by which the call draws its noise.
inline uint64_t noise_call(const Call &call) {
    return call.feedback ? call.feedback->call : call.number + call.fused_before;
}

// Returns true if the receive buffer overlaps the send buffer.
bool is_in_place(const Program &program, const Call &call);

struct EngineOptions {
    // Calls whose vectors, of all ranks together, have more bytes store their results past the
    // cache, which the results would only flush. With inputs and results, a last-level cache of 32
    // MiB is then full (Zen 4: at half this size, storing through the cache takes two thirds of the
    // time; at twice this size both ways take the same time, or through the cache longer).
    uint64_t streaming_bytes = uint64_t{16} << 20;
    // GPU memory as large as the transport's outbox, which all ranks have exposed to each other
    // (Windows::use_device_memory). Payloads lie in it. Empty: payloads lie in the outbox.
    std::span<std::byte> device_outbox{};
    // Eager slots in GPU memory, which all ranks have exposed too. Fast-path programs use them.
    DeviceEagerSlots device_eager_slots{};
    // Is told of every call and outlives the engine. Null: calls are not traced.
    CallTracer *tracer = nullptr;
};

// The memory that calls run in. The engine keeps it between calls.
struct EngineMemory {
    DeviceMemory tiles;    // accumulators of the current tile
    DeviceMemory scratch;  // payload of the current tile; on a GPU: scratch memory of the kernels
    DeviceMemory segments; // accumulators that outlive a tile; on the fast path: its only one
    DeviceMemory products; // of pre_mul_sum: the input of a call over eager slots
    // Of a program with feedback: the inputs with what the call owes, and on the fast path what an
    // encode's bytes decode to.
    DeviceMemory inputs, decoded;
    UnpackedChunks unpacked; // of programs that pack chunks
    std::vector<PipelineLane> lanes;
    std::vector<TileStep> steps; // of the current task
    std::vector<const std::byte *> eager_slots;
    StoreChoices stores;
    // Fingerprints of programs whose first call all ranks have begun together. A hash table: a
    // newer program replaces an older one in the same place, whose next call all ranks begin
    // together once more. All ranks see the same programs in the same order, so their tables are
    // alike. See has_to_meet for two programs with one fingerprint.
    std::array<uint64_t, 64> agreed{};
    // How the outbox and the inbox are cut now. The bytes of a slot may move only while no peer
    // reads any slot.
    uint64_t slot_bytes = 0;
    uint32_t used_slots = 0, used_recv_buffers = 0;
    uint64_t last_call = 0;       // number of the last call that has begun
    RecentLargeCall recent_large; // large: between hosts, and outbox and inbox are too small for it
    std::span<std::byte> device_outbox;         // as in EngineOptions
    std::unique_ptr<GpuFastPath> gpu_fast_path; // null without eager slots in GPU memory
    GpuFactors factors;                         // of pre_mul_sum
    // GPU only. The last member, so that no kernel is running when the other members end.
    std::unique_ptr<GpuLanes> gpu;
};

// Prepares streams and kernel scratch memory for `lanes` lanes of the program. An error is the
// GPU's.
Done prepare_gpu(EngineMemory &memory, const Device &device, const Program &program,
                 uint32_t lanes);

struct ExchangedParts;

// What all calls of an engine run with. It lives as long as the engine.
struct EngineContext {
    Transport &transport;
    const Device &device;
    EngineMemory &memory;
    Counters &counters;
};

class Engine {
public:
    // `transport` must outlive the engine.
    Engine(Transport &transport, const Device &device, const EngineOptions &options)
        : transport_(transport), device_(device), options_(options) {
        if (device.gpu) memory_.gpu = std::make_unique<GpuLanes>(device.gpu);
        memory_.device_outbox = options.device_outbox;
    }

    // Creates what calls need on the GPU and must not create themselves, because a driver may let
    // that wait for streams that wait for calls. Once, before the first call; an error is the
    // GPU's.
    Done open_gpu();

    // Runs the call to its end; one thread at a time. All ranks must run programs compiled for the
    // same work and cut, in the same order. After an error recv is undefined, and the caller must
    // fail the transport, because the other ranks wait for this rank.
    Done run(const Program &program, const Call &call);

    // Whether a call of the program would wait for no other rank: a message over eager slots whose
    // sender has a free slot, or whose receiver finds the sender's slot posted. False if that
    // is not known. Between calls.
    bool can_run_at_once(const Program &program) const;

    // Whether CallInFlight::begin would wait for no other rank, and the call needs nothing that
    // only `run` has: traces, a GPU, memory of its own. Between calls.
    bool can_begin(const Program &program) const;

    // Waits until no peer reads this rank's GPU memory. Fails if the communicator has failed. Call
    // it between calls only.
    Done await_readers();

    // Returns the bytes of accumulators, payloads and unpacked chunks that are kept for later
    // calls. Between calls.
    size_t kept_bytes() const {
        return memory_.tiles.bytes() + memory_.scratch.bytes() + memory_.segments.bytes() +
               memory_.unpacked.bytes();
    }

    // Returns all counts. Any thread, any time; does not block.
    Counts counts() const {
        Counts counts = counters_.read();
        counts.network_ns = static_cast<uint64_t>(transport_.network_time().count());
        return counts;
    }

private:
    friend class CallInFlight;

    EngineContext context() { return {transport_, device_, memory_, counters_}; }
    Done run_as_asked(const Program &program, const Call &call);
    Done run_with_feedback(const Program &program, const Call &call);
    Done add_owed_on_gpu(const Work &work, const Call &call, uint64_t count);
    Done begin_call(const Program &program, const Call &call);
    Done end_call(const Program &program);
    bool streams_results(const Program &program, const Call &call) const;
    template <class Run> Done on_gpu(Run run);
    Done run_traced(const Program &program, const Call &call);
    template <class Trace> Done run_with(const Program &program, const Call &call, Trace &trace);
    template <class Trace>
    Done run_tasks(const Program &program, const Call &call, Trace &trace,
                   const ExchangedParts *exchanged);
    template <class Trace> Done run_parts(const Program &program, const Call &call, Trace &trace);
    void refresh_windows(const Program &program, const Call &call);
    void give_back(const Program &program);
    void count_call(const Program &program);
    Done prepare_sum(const Program &program);
    FastPathCall bind_call(const Call &call) const;
    template <class Trace>
    Done exchange(const Program &program, const Call &call, const FastPathCall &bound,
                  Trace &trace);
    template <class Trace>
    Done exchange(const Program &program, const CallShape &shape, const Call &call,
                  const FastPathCall &bound, Trace &trace);
    template <class Trace>
    Done run_on_fast_path(const Program &program, const Call &call, Trace &trace);
    template <class Trace>
    Done run_made_op(const Program &program, const Call &call, FastPathCall bound, Trace &trace);
    Done multiply_input(const Program &program, const Call &call, FastPathCall &bound);
    Done run_on_gpu_fast_path(const Program &program, const Call &call, StepTrace *trace);

    Transport &transport_;
    const Device device_;
    const EngineOptions options_;
    EngineMemory memory_;
    Counters counters_;
};

} // namespace qccl
