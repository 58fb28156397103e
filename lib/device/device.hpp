// A device is the place where a rank's values live and are computed: the host, or a GPU with the
// host beside it. This unit has both devices, and owner objects for device memory and for a GPU's
// streams, events and pinned host memory. The engine, the stream-ordered calls and everything that
// allocates memory for values use it. Any thread may call. Allocation may block in the operating
// system or in the GPU's driver; making a Device does not block. An error is the operating system's
// or the GPU's (see gpu.hpp).
//
// The loader finds a device by its name: "host", or a vendor and a number, as in "cuda:0". A module
// drives the GPUs of one vendor; it is loaded when the caller first asks for such a GPU.
// Communicator creation and the tools use this. Loading blocks on the file system and on the
// vendor's driver.
#pragma once

#include "base/result.hpp"
#include "device/gpu.hpp"
#include "device/kernels.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

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

// ---- The host

// Returns the host, which computes with these kernels.
Device host_device(const Kernels &kernels);

// ---- GPUs

// Returns a device whose values live on `gpu`. It keeps the kernels of `host`, which headers and
// the chunks of other ranks need.
Device gpu_device(const Device &host, std::shared_ptr<Gpu> gpu);

// Owns an object of a GPU. Its destructor passes the object, and `More` behind it, to `destroy`, a
// function of Gpu.
template <auto destroy, class... More> struct GpuHandleDeleter {
    std::shared_ptr<Gpu> gpu;
    std::tuple<More...> more{};

    template <class Object> void operator()(Object *object) const {
        std::apply([&](const More &...each) { ((*gpu).*destroy)(object, each...); }, more);
    }
};
template <class Object, auto destroy, class... More>
using OwnedGpuHandle = std::unique_ptr<Object, GpuHandleDeleter<destroy, More...>>;

// A stream of a GPU that its destructor destroys.
class OwnStream {
public:
    static Result<OwnStream> create(std::shared_ptr<Gpu> gpu, StreamPriority priority);

    GpuStream get() const { return stream_.get(); }

private:
    OwnedGpuHandle<GpuStreamHandle, &Gpu::destroy_stream> stream_;
};

// An event of a GPU that its destructor destroys.
class GpuEvent {
public:
    static Result<GpuEvent> create(std::shared_ptr<Gpu> gpu);

    // Records the event behind everything that `stream` has been given so far.
    Done set(GpuStream stream) { return gpu().record_event(event_.get(), stream); }
    // Makes `stream` wait for the event.
    Done hold(GpuStream stream) const { return gpu().await_event(stream, event_.get()); }
    Result<bool> has_passed() const { return gpu().has_passed(event_.get()); }

private:
    Gpu &gpu() const { return *event_.get_deleter().gpu; }
    OwnedGpuHandle<GpuEventObject, &Gpu::destroy_event> event_;
};

// Host memory that a GPU reaches too, and that its destructor gives back.
class PinnedMemory {
public:
    static Result<PinnedMemory> create(std::shared_ptr<Gpu> gpu, size_t bytes);

    std::byte *data() const { return memory_.get(); }

private:
    OwnedGpuHandle<std::byte, &Gpu::release_pinned, size_t> memory_;
};

// ---- Loader

// Names of the vendors whose GPUs the library supports, whether or not this build has their
// modules.
std::vector<std::string> gpu_vendors();

// Checks that `spec` has the form of a device's name; loads nothing. The error names the possible
// devices and starts with `who`, the source of the name, as in "config: device".
Done check_device(const std::string &who, std::string_view spec);

// Opens the GPU that `spec` names; null for "host". The error (invalid_argument) says what is
// missing: the module, the driver, or the GPU of that number. Other errors are the module's.
Result<std::shared_ptr<Gpu>> open_gpu(std::string_view spec);

// Returns how many GPUs of a vendor this machine has. If there are none, the error says why.
Result<uint32_t> count_gpus(const std::string &vendor);

} // namespace qccl
