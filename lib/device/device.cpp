// Device memory that its owner object frees.
#include "device/device.hpp"

namespace qccl {

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

} // namespace qccl
