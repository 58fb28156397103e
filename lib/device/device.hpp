// A device: where a rank's values live and what computes on them. Knows no schedules, no transports
// and no other rank.
#pragma once

#include "base/result.hpp"
#include "kernels/gpu.hpp"
#include "kernels/kernels.hpp"

#include <cstddef>
#include <memory>
#include <span>
#include <utility>

namespace qccl {

// What a rank computes with: this machine's cores, or a GPU beside them.
struct Device {
    const Kernels *kernels;   // of the host
    std::shared_ptr<Gpu> gpu; // null: values live in the host's memory

    // Zeroed memory, aligned for every kernel and for streaming stores; of a GPU this process's
    // alone.
    Result<std::byte *> (*allocate)(Gpu *gpu, size_t bytes);
    void (*free)(Gpu *gpu, std::byte *memory, size_t bytes);

    const char *name() const { return gpu ? gpu->traits().name.c_str() : "host"; }
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
    using Free = void(Gpu *gpu, std::byte *memory, size_t bytes);
    DeviceMemory(Free *free, std::shared_ptr<Gpu> gpu, std::span<std::byte> bytes)
        : free_(free), gpu_(std::move(gpu)), bytes_(bytes) {}
    void swap(DeviceMemory &other) noexcept {
        std::swap(free_, other.free_);
        std::swap(gpu_, other.gpu_);
        std::swap(bytes_, other.bytes_);
    }

    Free *free_ = nullptr;
    std::shared_ptr<Gpu> gpu_;
    std::span<std::byte> bytes_;
};

// Makes sure of at least so many bytes; what the memory held is lost where it has to grow. Nothing
// uses it just now.
Done grow(DeviceMemory &memory, const Device &device, size_t bytes);

} // namespace qccl
