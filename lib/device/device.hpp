// A device: where a rank's values live and what computes on them. Knows no schedules, no transports
// and no other rank.
#pragma once

#include "base/result.hpp"
#include "kernels/kernels.hpp"

#include <cstddef>
#include <span>
#include <utility>

namespace qccl {

enum class MemoryKind : uint8_t { host };

// What a device gives; one constant table per kind of device.
struct Device {
    const char *name; // as config.device spells it
    MemoryKind memory;
    const Kernels *kernels;

    // Zeroed memory, aligned for every kernel and for streaming stores.
    Result<std::byte *> (*allocate)(size_t bytes);
    void (*free)(std::byte *memory, size_t bytes);
};

// Device memory that frees itself.
class DeviceMemory {
public:
    static Result<DeviceMemory> create(const Device &device, size_t bytes);

    DeviceMemory() = default;
    DeviceMemory(DeviceMemory &&other) noexcept { swap(other); }
    DeviceMemory &operator=(DeviceMemory &&other) noexcept {
        DeviceMemory(std::move(other)).swap(*this);
        return *this;
    }
    ~DeviceMemory();

    std::byte *data() const { return bytes_.data(); }
    size_t bytes() const { return bytes_.size(); }

private:
    DeviceMemory(void (*free)(std::byte *, size_t), std::span<std::byte> bytes)
        : free_(free), bytes_(bytes) {}
    void swap(DeviceMemory &other) noexcept {
        std::swap(free_, other.free_);
        std::swap(bytes_, other.bytes_);
    }

    void (*free_)(std::byte *, size_t) = nullptr;
    std::span<std::byte> bytes_;
};

// Makes sure of at least so many bytes; what the memory held is lost where it has to grow.
Done grow(DeviceMemory &memory, const Device &device, size_t bytes);

} // namespace qccl
