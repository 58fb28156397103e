// Memory of the host consists of anonymous mappings, with huge pages where they pay. A GPU's
// memory, streams and events come from its module; the owner objects free them.
#include "device/device.hpp"

#include <cerrno>
#include <cstring>

#include <sys/mman.h>

namespace qccl {

// ---- Device memory

Result<DeviceMemory> DeviceMemory::create(const Device &device, size_t bytes) {
    DeviceMemory own;
    if (bytes == 0) return own;
    QCCL_TRY(std::byte *const memory, device.allocate(device.gpu.get(), bytes));
    own.memory_ = {memory, {device.free, device.gpu, bytes}};
    return own;
}

Done grow(DeviceMemory &memory, const Device &device, size_t bytes) {
    if (memory.bytes() >= bytes) return {};
    memory = {}; // first, so that the old and the new memory never exist at once
    QCCL_TRY(memory, DeviceMemory::create(device, bytes));
    return {};
}

// ---- The host

namespace {

// From this size on, huge pages save more TLB misses than they waste memory.
constexpr size_t huge_page_bytes = size_t{2} << 20;

Result<std::byte *> host_allocate(Gpu *, size_t bytes) {
    // Own pages instead of the heap's: they are aligned beyond any vector, zeroed, and go back to
    // the kernel whole.
    void *memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return Error::make(Code::system_error, "cannot allocate %zu bytes of host memory: %s",
                           bytes, std::strerror(errno));
    // This is only a hint: a kernel without huge pages refuses it, and the memory works all the
    // same.
    if (bytes >= huge_page_bytes) (void)madvise(memory, bytes, MADV_HUGEPAGE);
    return static_cast<std::byte *>(memory);
}

void host_free(Gpu *, std::byte *memory, size_t bytes) { munmap(memory, bytes); }

} // namespace

Device host_device(const Kernels &kernels) {
    return {.kernels = &kernels, .gpu = nullptr, .allocate = host_allocate, .free = host_free};
}

// ---- GPUs

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
    QCCL_TRY(const GpuEventHandle event, gpu->create_event());
    GpuEvent own;
    own.event_ = {event, {std::move(gpu)}};
    return own;
}

Result<PinnedMemory> PinnedMemory::create(std::shared_ptr<Gpu> gpu, size_t bytes) {
    QCCL_TRY(std::byte *const memory, gpu->acquire_pinned(bytes));
    PinnedMemory own;
    own.memory_ = {memory, {std::move(gpu), {bytes}}};
    return own;
}

} // namespace qccl
