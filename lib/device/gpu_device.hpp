// A GPU as a device: what the engine launches there and on which of its streams, and memory of the
// host that it reaches.
#pragma once

#include "device/device.hpp"

namespace qccl {

// `host` beside a GPU: of its kernels the host's are what headers and other ranks' chunks need.
Device gpu_device(const Device &host, std::shared_ptr<Gpu> gpu);

// A stream of a GPU that ends with its owner.
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

// A mark that ends with its owner.
class OwnMark {
public:
    static Result<OwnMark> create(std::shared_ptr<Gpu> gpu);

    Done set(GpuStream stream) { return gpu().set_mark(mark_.get(), stream); }
    Done hold(GpuStream stream) const { return gpu().await_mark(stream, mark_.get()); }
    Result<bool> is_passed() const { return gpu().is_passed(mark_.get()); }

private:
    struct End {
        std::shared_ptr<Gpu> gpu;
        void operator()(GpuMark mark) const { gpu->destroy_mark(mark); }
    };
    Gpu &gpu() const { return *mark_.get_deleter().gpu; }
    std::unique_ptr<GpuMarkHandle, End> mark_;
};

// Memory of the host that a GPU reaches, too, and that ends with its owner.
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
