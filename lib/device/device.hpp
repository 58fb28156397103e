// A device is the place where a rank's values live and are computed: the host, or a GPU with the
// host beside it. The engine and everything that allocates memory for values use it. Allocation may
// block in the operating system or in the GPU's driver.
#pragma once

#include "base/result.hpp"
#include "kernels/gpu.hpp"
#include "kernels/kernels.hpp"

#include <cstddef>
#include <memory>

namespace qccl {

// The compute resources of a rank: the host's cores, or a GPU beside them.
struct Device {
    const Kernels *kernels;   // the host's kernels
    std::shared_ptr<Gpu> gpu; // null: values live in host memory

    // Allocates zeroed memory that is aligned for every kernel and for streaming stores. `gpu` is
    // the member above. Memory of a GPU belongs to this process alone.
    Result<std::byte *> (*allocate)(Gpu *gpu, size_t bytes);
    void (*free)(Gpu *gpu, std::byte *memory, size_t bytes);

    const char *name() const { return gpu ? gpu->traits().name.c_str() : "host"; }
    // Prefix of the names of the threads that the GPU's runtime starts. Empty: the prefix is
    // unknown, or there is no GPU.
    const char *threads() const { return gpu ? gpu->traits().threads : ""; }
};

// Device memory that its destructor frees.
class DeviceMemory {
public:
    // Allocates zeroed memory; no memory and no error if `bytes` is 0. An error is the device's.
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

// Makes `memory` hold at least `bytes`. Memory that has to grow loses its content, so nothing may
// be using it.
Done grow(DeviceMemory &memory, const Device &device, size_t bytes);

} // namespace qccl
