// A GPU as the module of its vendor gives it: memory, streams, marks, launches. The one interface
// between what the library knows and what a vendor's runtime does; knows no ranks and no schedules.
//
// Every call may come from any thread, leaves the thread's own choice of a GPU as it was, and works
// while another thread captures a graph. An Error names the GPU and what its runtime said; it is
// invalid_argument where the caller's stream cannot be the one that was meant.
#pragma once

#include "base/result.hpp"
#include "kernels/batch.hpp"
#include "kernels/kernel_list.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

namespace qccl {

// The vendor's own handles: a stream is the one that the vendor's API gives its users, null being
// the default stream, and a mark is an event.
struct GpuStreamHandle;
using GpuStream = GpuStreamHandle *;
struct GpuMarkHandle;
using GpuMark = GpuMarkHandle *;

// Of a stream among all that a GPU has to do.
enum class StreamPriority : uint8_t {
    usual,    // what a stream gets whose creator names none: programs' streams
    greatest, // the library's own streams
};

// At multiples of which all memory of a GPU starts, at least.
inline constexpr size_t gpu_alignment = 256;

// Where a pointer leads.
struct GpuPlace {
    enum class Kind : uint8_t {
        pageable, // memory of the host that the GPU does not know
        pinned,   // memory of the host that it reaches
        gpu,      // of the GPU `number`
        managed,  // of both
    };
    Kind kind = Kind::pageable;
    uint32_t number = 0;
};

// What another process needs to reach memory of a GPU. Travels as bytes.
struct GpuMemoryName {
    std::array<char, 8> vendor{};       // "cuda"; others' memory is never reached
    std::array<std::byte, 16> gpu{};    // names it on this machine
    uint64_t process = 0;               // drawn at random by each
    uint64_t address = 0, bytes = 0;    // there
    uint64_t offset = 0;                // from where the handle leads
    std::array<std::byte, 64> handle{}; // the vendor's own
};

struct GpuTraits {
    std::string name;  // "cuda:0"
    std::string model; // "NVIDIA H200"
    // Of its PCI slot as hwloc writes it, "0000:1b:00.0"; empty: it is in none.
    std::string bus_id;
    uint32_t number = 0;
    uint32_t lanes = 32; // of a warp
    uint32_t multiprocessors = 1;
    // How the runtime calls the threads that it has for itself, or how their names begin; empty: it
    // has no names for them.
    const char *threads = "";
    // Whether streams of its users can be made to wait for the host (await_gate).
    bool has_gates = false;
    bool can_capture = false; // graphs, with gates in them
    // Kernels of several GPUs can wait for each other's words (kernels/gpu_meeting.hpp).
    bool can_meet = false;
};

class Gpu {
public:
    virtual ~Gpu() = default;

    virtual const GpuTraits &traits() const = 0;

    // ---- Memory. All zeros, and at gpu_alignment.

    // Can be named, and lasts as long as the process: what is left serves the next who takes as
    // much. To leave it waits for nothing, and others may still have it mapped.
    virtual Result<std::byte *> take_lasting(size_t bytes) = 0;
    virtual void leave_lasting(std::byte *memory, size_t bytes) = 0;
    // Likewise memory of the host that the GPU reaches.
    virtual Result<std::byte *> take_pinned(size_t bytes) = 0;
    virtual void leave_pinned(std::byte *memory, size_t bytes) = 0;
    // This process's alone; neither call waits for streams of others.
    virtual Result<std::byte *> allocate_private(size_t bytes) = 0;
    virtual void free_private(std::byte *memory) = 0;

    virtual Result<GpuPlace> find(const void *memory) const = 0;
    // Lets the GPU reach memory of the host, as often as asked: the last `unpin` ends it, and may
    // wait for all that GPUs do.
    virtual Done pin(std::byte *memory, size_t bytes) = 0;
    virtual void unpin(std::byte *memory) = 0;

    virtual Result<GpuMemoryName> name_memory(std::byte *memory, size_t bytes) const = 0;
    // Memory of a GPU, also of another process, as this GPU reaches it; an error where it cannot.
    // To be unmapped before its owner frees it.
    virtual Result<std::byte *> map(const GpuMemoryName &name) = 0;
    virtual void unmap(const GpuMemoryName &name, std::byte *memory) = 0;

    // ---- Streams: what is put into one happens in order, beside other streams.

    // Never waits for the default stream. Streams of one priority may share a queue of the GPU,
    // where a stream at a gate holds up all others. Those by which the gate comes to open are of
    // the greatest priority, so streams that stand at gates must not be.
    virtual Result<GpuStream> create_stream(StreamPriority priority) = 0;
    virtual void destroy_stream(GpuStream stream) = 0;
    // False for every stream of a GPU that has one priority only.
    virtual Result<bool> has_greatest_priority(GpuStream stream) const = 0;
    // Which capture the stream is in, by a number that no other one of the process has; 0: none.
    virtual Result<uint64_t> capture_of(GpuStream stream) const = 0;
    // Calls `end` once, when nothing is left of the graph that the stream's capture makes; also
    // where this fails. On any thread; it must not call the GPU, but may leave what it took.
    virtual Done tie_to_graph(GpuStream stream, void (*end)(void *), void *context) = 0;

    virtual Done launch(GpuStream stream, KernelId kernel, unsigned blocks, const Batch &batch) = 0;
    virtual Done copy(GpuStream stream, void *to, const void *from, size_t bytes) = 0;
    // On a thread of the runtime; it must not call the GPU. Not called where the stream has failed.
    virtual Done call_host(GpuStream stream, void (*function)(void *), void *context) = 0;
    virtual Done synchronize(GpuStream stream) = 0;

    // ---- Marks: when a stream has come by.

    virtual Result<GpuMark> create_mark() = 0;
    virtual void destroy_mark(GpuMark mark) = 0;
    virtual Done set_mark(GpuMark mark, GpuStream stream) = 0; // forgets where it stood before
    // The stream goes on when another has come by. Of a stream that captures the mark is its
    // capture's alone.
    virtual Done await_mark(GpuStream stream, GpuMark mark) = 0;
    // An error is the stream's: what went before has failed.
    virtual Result<bool> is_passed(GpuMark mark) const = 0;

    // ---- Gates: words of the host at which a stream waits without any thread's help. Only where
    // traits().has_gates.

    virtual Result<uint32_t *> create_gate() = 0;
    virtual void destroy_gate(uint32_t *gate) = 0;
    // The stream goes on when the gate's word has come to `value`, or as far beyond as counting
    // upwards, also past zero, leads within 2^31.
    virtual Done await_gate(GpuStream stream, const uint32_t *gate, uint32_t value) = 0;
};

// What a vendor's module exports; the library loads it when a GPU of the vendor is asked for.
struct GpuModule {
    static constexpr uint32_t current_abi = 4;

    uint32_t abi;
    const char *vendor; // "cuda"
    // 0: `why` says why there is none.
    uint32_t (*count)(char *why, size_t why_bytes);
    // Null: the error says why. To be deleted.
    Gpu *(*open)(uint32_t number, Error *error);
};

inline constexpr const char *gpu_module_symbol = "qccl_gpu_module";
using GpuModuleFunction = const GpuModule *();

} // namespace qccl
