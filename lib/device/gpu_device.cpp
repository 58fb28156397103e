// Owner objects for a GPU's streams, events and pinned memory.
#include "device/gpu_device.hpp"

namespace qccl {

Device gpu_device(const Device &host, std::shared_ptr<Gpu> gpu) {
    return {.kernels = host.kernels,
            .gpu = std::move(gpu),
            .allocate = [](Gpu *of, size_t bytes) { return of->allocate_private(bytes); },
            .free = [](Gpu *of, std::byte *memory, size_t) { of->free_private(memory); }};
}

Result<OwnStream> OwnStream::create(std::shared_ptr<Gpu> gpu, StreamPriority priority) {
    QCCL_TRY(const GpuStream stream, gpu->create_stream(priority));
    OwnStream own;
    own.stream_ = {stream, {std::move(gpu)}};
    return own;
}

Result<GpuEvent> GpuEvent::create(std::shared_ptr<Gpu> gpu) {
    QCCL_TRY(const GpuMark mark, gpu->create_mark());
    GpuEvent own;
    own.mark_ = {mark, {std::move(gpu)}};
    return own;
}

Result<PinnedMemory> PinnedMemory::create(std::shared_ptr<Gpu> gpu, size_t bytes) {
    QCCL_TRY(std::byte *const memory, gpu->take_pinned(bytes));
    PinnedMemory own;
    own.memory_ = {memory, {std::move(gpu), bytes}};
    return own;
}

} // namespace qccl
