// A device: where a rank's values live and what computes on them. Knows no schedules, no transports
// and no other rank.
#pragma once

#include "base/result.hpp"
#include "kernels/gpu.hpp"
#include "kernels/kernels.hpp"

#include <cstddef>
#include <memory>

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
    // How the names of its runtime's own threads begin; empty: it is not known.
    const char *threads() const { return gpu ? gpu->traits().threads : ""; }
};

// Device memory that frees itself.
class DeviceMemory {
public:
    static Result<DeviceMemory> create(const Device &device, size_t bytes);

    std::byte *data() const { return memory_.get(); }
    size_t bytes() const { return memory_ ? memory_.get_deleter().bytes : 0; }

private:
    struct Free {
        void (*free)(Gpu *gpu, std::byte *memory, size_t bytes);
        std::shared_ptr<Gpu> gpu;
        size_t bytes;
        void operator()(std::byte *memory) const { free(gpu.get(), memory, bytes); }
    };
    std::unique_ptr<std::byte, Free> memory_;
};

// Makes sure of at least so many bytes; what the memory held is lost where it has to grow. Nothing
// uses it just now.
Done grow(DeviceMemory &memory, const Device &device, size_t bytes);

} // namespace qccl
