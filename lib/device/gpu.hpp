// A GPU as its vendor's module provides it: memory, streams, events and launches. This is the only
// interface between the library and a vendor's runtime. The devices and the engine use this
// interface.
//
// Any thread may make any call. A call leaves the thread's current GPU as it was, and works while
// another thread captures a graph. An Error names the GPU and the message of its runtime. The
// Error's code is invalid_argument if the caller's stream cannot be the intended one.
#pragma once

#include "base/result.hpp"
#include "device/batch.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

namespace qccl {

// The vendor's own handles. A stream is the handle that the vendor's API gives its users; null is
// the default stream.
struct GpuStreamHandle;
using GpuStream = GpuStreamHandle *;
struct GpuEventObject;
using GpuEventHandle = GpuEventObject *;

// Priority of a stream among all work of a GPU.
enum class StreamPriority : uint8_t {
    usual,    // default priority of a new stream: that of programs' streams
    greatest, // the library's own streams
};

// All memory of a GPU starts at a multiple of this number of bytes.
inline constexpr size_t gpu_alignment = 256;

// The memory that a pointer points to.
struct GpuPlace {
    enum class Kind : uint8_t {
        pageable, // host memory that the GPU does not know
        pinned,   // host memory that the GPU reaches
        gpu,      // memory of the GPU `number`
        managed,  // managed by the runtime, for host and GPU
    };
    Kind kind = Kind::pageable;
    uint32_t number = 0;
};

// What another process needs to map memory of a GPU. Sent as bytes.
struct GpuMemoryName {
    std::array<char, 8> vendor{};       // "cuda"; memory of another vendor's GPU cannot be reached
    std::array<std::byte, 16> gpu{};    // identifies the GPU on this machine
    uint64_t process = 0;               // random number of the process
    uint64_t address = 0, bytes = 0;    // in that process
    uint64_t offset = 0;                // from the address that the handle opens
    std::array<std::byte, 64> handle{}; // the vendor's IPC handle
};

struct GpuTraits {
    std::string name;  // "cuda:0"
    std::string model; // "NVIDIA H200"
    // The PCI address as hwloc writes it, "0000:1b:00.0"; empty: the GPU is in no slot.
    std::string bus_id;
    uint32_t number = 0;
    uint32_t lanes = 32; // per warp
    uint32_t multiprocessors = 1;
    // Name of the threads that the runtime starts for itself, or its prefix; empty: the runtime
    // does not name them.
    const char *threads = "";
    // Whether a user's stream can wait for a word of the host (await_stream_wait).
    bool has_stream_waits = false;
    bool can_capture = false; // graphs, also with waits for host words in them
    // Whether kernels of several GPUs can wait for each other's words
    // (kernels/gpu/gpu_barrier.hpp).
    bool has_gpu_barrier = false;
};

class Gpu {
public:
    virtual ~Gpu() = default;

    virtual const GpuTraits &traits() const = 0;

    // ---- Memory: zeroed, and aligned to gpu_alignment.

    // Takes memory that can be named and that lasts as long as the process. A released piece serves
    // the next caller that asks for as much. Releasing waits for nothing; other processes may still
    // have the memory mapped.
    virtual Result<std::byte *> pool_acquire(size_t bytes) = 0;
    virtual void pool_release(std::byte *memory, size_t bytes) = 0;
    // The same for host memory that the GPU reaches.
    virtual Result<std::byte *> acquire_pinned(size_t bytes) = 0;
    virtual void release_pinned(std::byte *memory, size_t bytes) = 0;
    // Memory of this process alone. Neither call waits for streams of others.
    virtual Result<std::byte *> allocate_private(size_t bytes) = 0;
    virtual void free_private(std::byte *memory) = 0;

    virtual Result<GpuPlace> find(const void *memory) const = 0;
    // Makes host memory reachable for the GPU. Pins of the same memory are counted: the last
    // `unpin` ends them, and it may wait for all work of all GPUs.
    virtual Done pin(std::byte *memory, size_t bytes) = 0;
    virtual void unpin(std::byte *memory) = 0;

    virtual Result<GpuMemoryName> name_memory(std::byte *memory, size_t bytes) const = 0;
    // Returns the address at which this GPU reaches memory of a GPU, also of another process. Fails
    // if this GPU cannot reach the memory. The caller unmaps the memory before its owner frees it.
    virtual Result<std::byte *> map(const GpuMemoryName &name) = 0;
    virtual void unmap(const GpuMemoryName &name, std::byte *memory) = 0;

    // ---- Streams: the work in one stream runs in order, beside the work of other streams.

    // Creates a stream that never waits for the default stream. Streams of one priority may share a
    // queue of the GPU, where a stream that waits for a host word holds up all others. The streams
    // whose work leads to the write of that word have the greatest priority, so streams that wait
    // for host words must not have it.
    virtual Result<GpuStream> create_stream(StreamPriority priority) = 0;
    virtual void destroy_stream(GpuStream stream) = 0;
    // Returns the stream of this object, which has the greatest priority, for what waits for no
    // call.
    virtual GpuStream own_stream() const = 0;
    // Returns false for every stream of a GPU that has only one priority.
    virtual Result<bool> has_greatest_priority(GpuStream stream) const = 0;
    // Returns the number of the capture that the stream is in, unique in the process; 0: none.
    virtual Result<uint64_t> capture_of(GpuStream stream) const = 0;
    // Calls `end` once, when nothing is left of the graph that the stream's capture makes, or if
    // this call fails. `end` runs on any thread. `end` must not call the GPU, but may release
    // pooled and pinned memory.
    virtual Done tie_to_graph(GpuStream stream, void (*end)(void *), void *context) = 0;

    virtual Done launch(GpuStream stream, KernelId kernel, unsigned blocks, const Batch &batch) = 0;
    virtual Done copy(GpuStream stream, void *to, const void *from, size_t bytes) = 0;
    // Calls `function` on a thread of the runtime. `function` must not call the GPU, and is not
    // called if the stream has failed.
    virtual Done call_host(GpuStream stream, void (*function)(void *), void *context) = 0;
    virtual Done synchronize(GpuStream stream) = 0;

    // ---- Marks (events): they record the point that a stream has reached.

    virtual Result<GpuEventHandle> create_event() = 0;
    virtual void destroy_event(GpuEventHandle event) = 0;
    virtual Done record_event(GpuEventHandle event,
                              GpuStream stream) = 0; // replaces the point recorded before
    // The stream waits until the recorded point is reached. An event that is recorded in a
    // capturing stream belongs to that capture only.
    virtual Done await_event(GpuStream stream, GpuEventHandle event) = 0;
    // Returns true if the recorded point is reached. An error means that earlier work of the stream
    // has failed.
    virtual Result<bool> has_passed(GpuEventHandle event) const = 0;

    // ---- Stream waits: host words that a stream waits for without the help of a thread. Only if
    // traits().has_stream_waits.

    virtual Result<uint32_t *> create_stream_wait() = 0;
    virtual void destroy_stream_wait(uint32_t *wait) = 0;
    // The stream goes on when the word has reached `value` or has counted up to 2^31 beyond it,
    // also past zero.
    virtual Done await_stream_wait(GpuStream stream, const uint32_t *wait, uint32_t value) = 0;
};

// What a vendor's module exports. The library loads the module when a GPU of that vendor is asked
// for.
struct GpuModule {
    static constexpr uint32_t current_abi = 7; // also the numbers of kernels (batch.hpp)

    uint32_t abi;
    const char *vendor; // "cuda"
    // Returns the number of GPUs. 0: `why` says why there is none.
    uint32_t (*count)(char *why, size_t why_bytes);
    // Opens a GPU, which the caller deletes. Null: `error` says why.
    Gpu *(*open)(uint32_t number, Error *error);
};

inline constexpr const char *gpu_module_symbol = "qccl_gpu_module";
using GpuModuleFunction = const GpuModule *();

} // namespace qccl
