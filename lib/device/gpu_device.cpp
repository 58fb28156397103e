#include "device/gpu_device.hpp"

namespace qccl {

Device gpu_device(const Device &host, std::shared_ptr<Gpu> gpu) {
    return {.kernels = host.kernels,
            .gpu = std::move(gpu),
            .allocate = [](Gpu *of, size_t bytes) { return of->allocate_private(bytes); },
            .free = [](Gpu *of, std::byte *memory, size_t) { of->free_private(memory); }};
}

Result<OwnStream> OwnStream::create(std::shared_ptr<Gpu> gpu) {
    OwnStream own;
    QCCL_TRY(own.stream_, gpu->create_stream());
    own.gpu_ = std::move(gpu);
    return own;
}

Result<OwnMark> OwnMark::create(std::shared_ptr<Gpu> gpu) {
    OwnMark own;
    QCCL_TRY(own.mark_, gpu->create_mark());
    own.gpu_ = std::move(gpu);
    return own;
}

Result<PinnedMemory> PinnedMemory::create(std::shared_ptr<Gpu> gpu, size_t bytes) {
    PinnedMemory own;
    QCCL_TRY(own.memory_, gpu->take_pinned(bytes));
    own.bytes_ = bytes;
    own.gpu_ = std::move(gpu);
    return own;
}

} // namespace qccl
