#include "device/device.hpp"

namespace qccl {

Result<DeviceMemory> DeviceMemory::create(const Device &device, size_t bytes) {
    if (bytes == 0) return DeviceMemory();
    QCCL_TRY(std::byte *const memory, device.allocate(device.gpu.get(), bytes));
    return DeviceMemory(device.free, device.gpu, {memory, bytes});
}

DeviceMemory::~DeviceMemory() {
    if (free_) free_(gpu_.get(), data(), bytes());
}

Done grow(DeviceMemory &memory, const Device &device, size_t bytes) {
    if (memory.bytes() >= bytes) return {};
    memory = {}; // first, so that both never exist at once
    QCCL_TRY(memory, DeviceMemory::create(device, bytes));
    return {};
}

} // namespace qccl
