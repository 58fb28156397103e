// A GPU as a device, and owner objects for its streams, its events and host memory that it reaches.
// The engine and the stream-ordered calls use them. An error is the GPU's (see kernels/gpu.hpp).
#pragma once

#include "device/device.hpp"

namespace qccl {

// Returns a device whose values live on `gpu`. It keeps the kernels of `host`, which headers and
// the chunks of other ranks need.
Device gpu_device(const Device &host, std::shared_ptr<Gpu> gpu);

// A stream of a GPU that its destructor destroys.
class OwnStream {
public:
    static Result<OwnStream> create(std::shared_ptr<Gpu> gpu, StreamPriority priority);

    GpuStream get() const { return stream_.get(); }

private:
    struct End {
        std::shared_ptr<Gpu> gpu;
        void operator()(GpuStream stream) const { gpu->destroy_stream(stream); }
    };
    std::unique_ptr<GpuStreamHandle, End> stream_;
};

// An event of a GPU that its destructor destroys.
class GpuEvent {
public:
    static Result<GpuEvent> create(std::shared_ptr<Gpu> gpu);

    // Records the event behind everything that `stream` has been given so far.
    Done set(GpuStream stream) { return gpu().set_mark(mark_.get(), stream); }
    // Makes `stream` wait for the event.
    Done hold(GpuStream stream) const { return gpu().await_mark(stream, mark_.get()); }
    Result<bool> has_passed() const { return gpu().has_passed(mark_.get()); }

private:
    struct End {
        std::shared_ptr<Gpu> gpu;
        void operator()(GpuMark mark) const { gpu->destroy_mark(mark); }
    };
    Gpu &gpu() const { return *mark_.get_deleter().gpu; }
    std::unique_ptr<GpuMarkHandle, End> mark_;
};

// Host memory that a GPU reaches too, and that its destructor gives back.
class PinnedMemory {
public:
    static Result<PinnedMemory> create(std::shared_ptr<Gpu> gpu, size_t bytes);

    std::byte *data() const { return memory_.get(); }

private:
    struct End {
        std::shared_ptr<Gpu> gpu;
        size_t bytes;
        void operator()(std::byte *memory) const { gpu->leave_pinned(memory, bytes); }
    };
    std::unique_ptr<std::byte, End> memory_;
};

} // namespace qccl
