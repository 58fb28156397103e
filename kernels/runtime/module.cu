// The GPU module of a vendor. It implements Gpu (gpu.hpp) with the names that runtime_*.hpp gives
// the vendor's runtime: one source for all vendors, compiled into a module of its own for each. The
// library loads the module and calls qccl_gpu_module. Any thread may call a Gpu.
#if defined(__CUDACC__)
#include "kernels/runtime/runtime_cuda.hpp"
#elif defined(__HIP__)
#include "kernels/runtime/runtime_hip.hpp"
#else
#include "kernels/runtime/runtime_emulated.hpp"
#endif

#include "base/exception_boundary.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include <sys/random.h>
#include <unistd.h>

namespace qccl {
namespace {

// ---- The process

// What a vendor's driver keeps once per process, counted for all users of GPUs in the process:
// pinned memory, opened memory of other processes, and memory that is kept when it is released. Any
// thread uses this state, under the mutexes below.
struct GpuRegistry {
    struct Pin {
        size_t uses = 0, bytes = 0;
        bool is_ours = false; // false: the program has pinned the memory
    };
    struct Opening {
        size_t uses = 0;
        void *base = nullptr;
    };

    // Returns the process's registry. A registry per communicator would pin and open twice what the
    // driver takes only once. A forked child is another process and gets a new registry, because
    // the parent's is of no use there.
    static GpuRegistry &current();

    // Returns memory that was left earlier, or null if there is none of that size. `where` is the
    // number of a GPU, or a number that stands for host memory. If the result is null, space for
    // the caller's new piece is reserved, so that leave() cannot fail later.
    std::byte *acquire_pooled(int where, size_t bytes) {
        const std::lock_guard lock(pool_mutex_);
        PoolEntry &pooled = pool_[{where, bytes}];
        if (pooled.free_pieces.empty()) {
            pooled.free_pieces.reserve(++pooled.pieces);
            return nullptr;
        }
        std::byte *const memory = pooled.free_pieces.back();
        pooled.free_pieces.pop_back();
        return memory;
    }
    void release_pooled(int where, std::byte *memory, size_t bytes) {
        const std::lock_guard lock(pool_mutex_);
        pool_[{where, bytes}].free_pieces.push_back(memory);
    }

    const pid_t id = getpid();
    uint64_t number = 0;                              // random
    std::mutex mutex;                                 // guards the members below
    std::map<std::array<std::byte, 16>, int> devices; // GPU numbers by GpuMemoryName::gpu
    std::map<void *, Pin> pins;
    std::map<std::pair<int, std::array<std::byte, 64>>, Opening> openings; // by GPU and handle

private:
    // Pieces are kept because freeing memory waits for all work of all GPUs, and that work may
    // itself wait for the thread that frees.
    struct PoolEntry {
        std::vector<std::byte *> free_pieces;
        size_t pieces = 0; // upper bound of the pieces that exist
    };
    // A driver's own threads leave pieces, too, and the driver's calls wait for those threads. No
    // thread may therefore call the driver while it holds this mutex.
    std::mutex pool_mutex_;
    std::map<std::pair<int, size_t>, PoolEntry> pool_; // by GPU (or host) and bytes
};

// Takes no lock, because another thread might hold it while a child is forked.
inline GpuRegistry &GpuRegistry::current() {
    static std::atomic<GpuRegistry *> current{nullptr};
    GpuRegistry *known = current;
    while (!known || known->id != getpid()) {
        auto made = std::make_unique<GpuRegistry>();
        if (getrandom(&made->number, sizeof made->number, 0) < 0)
            made->number =
                reinterpret_cast<uintptr_t>(made.get()) ^ static_cast<uint64_t>(made->id);
        if (current.compare_exchange_strong(known, made.get())) known = made.release();
    }
    return *known;
}

// ---- A GPU

using runtime::DeviceGuard;
using runtime::Status;

runtime::Stream own(GpuStream stream) { return reinterpret_cast<runtime::Stream>(stream); }
runtime::Event own(GpuEventHandle event) { return reinterpret_cast<runtime::Event>(event); }

std::array<char, 8> vendor_name() {
    std::array<char, 8> name{};
    std::copy_n(runtime::vendor, std::min(std::strlen(runtime::vendor), name.size()), name.data());
    return name;
}

// Calls `call` if the guard could select its GPU. Otherwise the call would reach the thread's
// current GPU.
template <class Call> Status during(const DeviceGuard &guard, Call &&call) {
    return runtime::is_ok(guard.status()) ? call() : guard.status();
}

class ModuleGpu final : public Gpu {
public:
    static Result<std::unique_ptr<ModuleGpu>> open(uint32_t number);
    ~ModuleGpu() override {
        if (stream_) undo([&] { return runtime::destroy(stream_); });
        undo([&] { return runtime::destroy(pool_); });
    }

    const GpuTraits &traits() const override { return traits_; }

    Result<std::byte *> pool_acquire(size_t bytes) override;
    void pool_release(std::byte *memory, size_t bytes) override {
        GpuRegistry::current().release_pooled(device_, memory, bytes);
    }
    Result<std::byte *> allocate_private(size_t bytes) override;
    void free_private(std::byte *memory) override {
        undo([&] { return runtime::free_in_order(memory, pool_, stream_); });
    }
    Result<std::byte *> acquire_pinned(size_t bytes) override;
    void release_pinned(std::byte *memory, size_t bytes) override {
        GpuRegistry::current().release_pooled(host_number, memory, bytes);
    }

    Result<GpuPlace> find(const void *memory) const override;
    Done pin(std::byte *memory, size_t bytes) override;
    void unpin(std::byte *memory) override;

    Result<GpuMemoryName> name_memory(std::byte *memory, size_t bytes) const override;
    Result<std::byte *> map(const GpuMemoryName &name) override;
    void unmap(const GpuMemoryName &name, std::byte *memory) override;

    Result<GpuStream> create_stream(StreamPriority priority) override {
        const bool is_greatest = priority == StreamPriority::greatest;
        runtime::Stream stream{};
        QCCL_TRY(doing("create a stream", [&] {
            return runtime::create(&stream, is_greatest ? priorities_.greatest : usual_priority);
        }));
        return reinterpret_cast<GpuStream>(stream);
    }
    void destroy_stream(GpuStream stream) override {
        undo([&] { return runtime::destroy(own(stream)); });
    }
    GpuStream own_stream() const override { return reinterpret_cast<GpuStream>(stream_); }
    Result<bool> has_greatest_priority(GpuStream stream) const override {
        int priority = 0;
        QCCL_TRY(doing("ask for the priority of a stream",
                       [&] { return runtime::priority_of(own(stream), &priority); }));
        return priorities_.least != priorities_.greatest && priority == priorities_.greatest;
    }
    Result<uint64_t> capture_of(GpuStream stream) const override {
        uint64_t capture = 0;
        QCCL_TRY(doing("ask a stream whether it captures",
                       [&] { return runtime::capture_of(own(stream), &capture); }));
        return capture;
    }
    Done tie_to_graph(GpuStream stream, void (*end)(void *), void *context) override {
        bool was_called = false;
        const Done done = doing("tie something to a graph", [&] {
            was_called = true;
            return runtime::tie_to_graph(own(stream), end, context);
        });
        if (!was_called) end(context);
        return done;
    }

    Done launch(GpuStream stream, KernelId kernel, unsigned blocks, const Batch &batch) override {
        return doing("launch a kernel",
                     [&] { return runtime::launch(own(stream), kernel, blocks, batch); });
    }
    Done copy(GpuStream stream, void *to, const void *from, size_t bytes) override {
        return doing("copy", [&] { return runtime::copy(own(stream), to, from, bytes); });
    }
    Done call_host(GpuStream stream, void (*function)(void *), void *context) override {
        return doing("have a stream call the host",
                     [&] { return runtime::call_host(own(stream), function, context); });
    }
    Done synchronize(GpuStream stream) override {
        return doing("wait for a stream", [&] { return runtime::synchronize(own(stream)); });
    }

    Result<GpuEventHandle> create_event() override {
        runtime::Event event{};
        QCCL_TRY(doing("create an event", [&] { return runtime::create(&event); }));
        return reinterpret_cast<GpuEventHandle>(event);
    }
    void destroy_event(GpuEventHandle event) override {
        undo([&] { return runtime::destroy(own(event)); });
    }
    Done record_event(GpuEventHandle event, GpuStream stream) override {
        return doing("record an event", [&] { return runtime::record(own(event), own(stream)); });
    }
    Done await_event(GpuStream stream, GpuEventHandle event) override {
        return doing("have a stream wait for an event",
                     [&] { return runtime::await(own(stream), own(event)); });
    }
    Result<bool> has_passed(GpuEventHandle event) const override {
        const DeviceGuard guard(device_);
        const Status status = during(guard, [&] { return runtime::query(own(event)); });
        if (runtime::is_ok(status)) return true;
        if (runtime::is_not_ready(status)) {
            runtime::forget(status);
            return false;
        }
        return failed("ask for an event", status);
    }

    Result<uint32_t *> create_stream_wait() override {
        QCCL_TRY(std::byte *const memory, acquire_pinned(sizeof(uint32_t)));
        return reinterpret_cast<uint32_t *>(memory);
    }
    void destroy_stream_wait(uint32_t *wait) override {
        release_pinned(reinterpret_cast<std::byte *>(wait), sizeof *wait);
    }
    Done await_stream_wait(GpuStream stream, const uint32_t *wait, uint32_t value) override {
        return doing("have a stream wait for the host",
                     [&] { return runtime::await_value(own(stream), wait, value); });
    }

private:
    static constexpr int host_number = -1;   // of host memory, in place of a GPU's
    static constexpr int usual_priority = 0; // default of every vendor's streams

    explicit ModuleGpu(uint32_t number) : device_(static_cast<int>(number)) {
        traits_.number = number;
        traits_.name = std::string(runtime::vendor) + ":" + std::to_string(number);
    }

    Error failed(const char *what, Status status) const {
        const Code code =
            runtime::is_misuse(status) ? Code::invalid_argument : Code::unhandled_device_error;
        const Error error = Error::make(code, "%s: cannot %s: %.300s", traits_.name.c_str(), what,
                                        runtime::text(status));
        runtime::forget(status);
        return error;
    }
    template <class Call> Done doing(const char *what, Call &&call) const {
        const DeviceGuard guard(device_);
        const Status status = during(guard, call);
        if (runtime::is_ok(status)) return {};
        return failed(what, status);
    }
    // Calls a function that ends something. The error is dropped because no caller could handle it.
    template <class Call> void undo(Call &&call) const {
        const DeviceGuard guard(device_);
        runtime::forget(during(guard, call));
    }
    // Returns the memory, zeroed. Memory that cannot be zeroed is given back.
    template <class GiveBack>
    Result<std::byte *> cleared(void *memory, size_t bytes, GiveBack &&give_back) {
        const Done done = doing("clear memory", [&] {
            const Status status = runtime::zero(stream_, memory, bytes);
            return runtime::is_ok(status) ? runtime::synchronize(stream_) : status;
        });
        if (done) return static_cast<std::byte *>(memory);
        give_back(static_cast<std::byte *>(memory));
        return done.error();
    }
    Done reach(int device) const;
    Result<int> find_owner(const GpuMemoryName &name) const;

    int device_;
    GpuTraits traits_;
    runtime::Uuid uuid_{};
    struct {
        int least = 0, greatest = 0; // a greater priority is a lower number
    } priorities_;
    runtime::Stream stream_{}; // of this object
    runtime::Pool pool_{};     // of private memory
};

Result<std::unique_ptr<ModuleGpu>> ModuleGpu::open(uint32_t number) {
    std::unique_ptr<ModuleGpu> gpu(new ModuleGpu(number));
    if (Status status = runtime::prepare(gpu->device_); !runtime::is_ok(status))
        return gpu->failed("begin", status);
    QCCL_TRY(gpu->doing("describe itself",
                        [&] { return runtime::describe(gpu->device_, gpu->traits_, gpu->uuid_); }));
    // A kernel that is only loaded at its launch may wait for all work of the GPU.
    QCCL_TRY(gpu->doing("load kernels", [] { return runtime::load_kernels(); }));
    QCCL_TRY(gpu->doing("ask for priorities", [&] {
        return runtime::find_priorities(&gpu->priorities_.least, &gpu->priorities_.greatest);
    }));
    QCCL_TRY(gpu->doing("create a stream",
                        [&] { return runtime::create(&gpu->stream_, gpu->priorities_.greatest); }));
    QCCL_TRY(gpu->doing("create a pool of memory",
                        [&] { return runtime::create(&gpu->pool_, gpu->device_); }));
    return Result<std::unique_ptr<ModuleGpu>>(std::move(gpu));
}

Result<std::byte *> ModuleGpu::pool_acquire(size_t bytes) {
    void *memory = GpuRegistry::current().acquire_pooled(device_, bytes);
    if (!memory)
        QCCL_TRY(doing("allocate memory", [&] { return runtime::allocate(&memory, bytes); }));
    return cleared(memory, bytes, [&](std::byte *start) { pool_release(start, bytes); });
}

Result<std::byte *> ModuleGpu::allocate_private(size_t bytes) {
    void *memory = nullptr;
    QCCL_TRY(doing("allocate memory",
                   [&] { return runtime::allocate_in_order(&memory, bytes, pool_, stream_); }));
    return cleared(memory, bytes, [&](std::byte *start) { free_private(start); });
}

Result<std::byte *> ModuleGpu::acquire_pinned(size_t bytes) {
    void *memory = GpuRegistry::current().acquire_pooled(host_number, bytes);
    if (!memory)
        QCCL_TRY(doing("allocate memory of the host",
                       [&] { return runtime::allocate_pinned(&memory, bytes); }));
    std::memset(memory, 0, bytes);
    return static_cast<std::byte *>(memory);
}

Result<GpuPlace> ModuleGpu::find(const void *memory) const {
    GpuPlace place;
    QCCL_TRY(doing("find out whose memory it is", [&] { return runtime::find(memory, place); }));
    return place;
}

Done ModuleGpu::pin(std::byte *memory, size_t bytes) {
    GpuRegistry &all = GpuRegistry::current();
    const std::lock_guard lock(all.mutex);
    const auto known = all.pins.find(memory);
    if (known != all.pins.end()) {
        if (known->second.bytes < bytes)
            return Error::make(Code::invalid_usage,
                               "%s: %zu bytes are pinned there already, not %zu",
                               traits_.name.c_str(), known->second.bytes, bytes);
        known->second.uses++;
        return {};
    }
    QCCL_TRY(const GpuPlace first, find(memory));
    QCCL_TRY(const GpuPlace last, find(memory + bytes - 1));
    const bool is_pinned = first.kind != GpuPlace::Kind::pageable && last.kind == first.kind;
    if (!is_pinned) QCCL_TRY(doing("pin memory", [&] { return runtime::pin(memory, bytes); }));
    all.pins.emplace(memory, GpuRegistry::Pin{.uses = 1, .bytes = bytes, .is_ours = !is_pinned});
    return {};
}

// The driver may wait for all work of all GPUs, and no other thread must wait for that, so the
// mutex is released first. No thread pins this memory meanwhile: all of its users have pinned it
// before.
void ModuleGpu::unpin(std::byte *memory) {
    GpuRegistry &all = GpuRegistry::current();
    std::unique_lock lock(all.mutex);
    const auto known = all.pins.find(memory);
    if (known == all.pins.end() || --known->second.uses > 0) return;
    const bool is_ours = known->second.is_ours;
    all.pins.erase(known);
    lock.unlock();
    if (is_ours) undo([&] { return runtime::unpin(memory); });
}

Result<GpuMemoryName> ModuleGpu::name_memory(std::byte *memory, size_t bytes) const {
    static_assert(sizeof(runtime::Handle) == sizeof(GpuMemoryName::handle));
    void *base = nullptr;
    runtime::Handle handle;
    QCCL_TRY(
        doing("find the beginning of memory", [&] { return runtime::find_base(memory, &base); }));
    QCCL_TRY(doing("name memory", [&] { return runtime::name(&handle, base); }));
    GpuMemoryName name{.vendor = vendor_name(),
                       .gpu = uuid_,
                       .process = GpuRegistry::current().number,
                       .address = reinterpret_cast<uintptr_t>(memory),
                       .bytes = bytes,
                       .offset = static_cast<uint64_t>(memory - static_cast<std::byte *>(base))};
    std::memcpy(name.handle.data(), &handle, sizeof handle);
    return name;
}

// Lets kernels of this GPU access memory of another GPU.
Done ModuleGpu::reach(int device) const {
    if (device == device_) return {};
    int can = 0;
    QCCL_TRY(doing("ask for access to another GPU",
                   [&] { return runtime::can_reach(&can, device_, device); }));
    if (can == 0)
        return Error::make(Code::unhandled_device_error, "%s: cannot reach the memory of %s:%d",
                           traits_.name.c_str(), runtime::vendor, device);
    const DeviceGuard guard(device_);
    const Status status = during(guard, [&] { return runtime::reach(device); });
    if (runtime::is_ok(status)) return {};
    if (!runtime::is_enabled_already(status)) return failed("reach another GPU", status);
    runtime::forget(status);
    return {};
}

Result<int> ModuleGpu::find_owner(const GpuMemoryName &name) const {
    if (name.vendor != vendor_name())
        return Error::make(Code::unhandled_device_error, "%s: cannot reach memory of another make",
                           traits_.name.c_str());
    GpuRegistry &all = GpuRegistry::current();
    const std::lock_guard lock(all.mutex);
    if (const auto known = all.devices.find(name.gpu); known != all.devices.end())
        return known->second;
    int devices = 0;
    QCCL_TRY(doing("count GPUs", [&] { return runtime::count(&devices); }));
    for (int device = 0; device < devices; device++) {
        GpuTraits ignored;
        runtime::Uuid uuid{};
        QCCL_TRY(doing("describe a GPU", [&] { return runtime::describe(device, ignored, uuid); }));
        all.devices[uuid] = device;
        if (uuid == name.gpu) return device;
    }
    return Error::make(Code::unhandled_device_error,
                       "%s: cannot reach memory of a GPU that this process does not see: "
                       "CUDA_VISIBLE_DEVICES or the like, a container, or MIG hides it",
                       traits_.name.c_str());
}

Result<std::byte *> ModuleGpu::map(const GpuMemoryName &name) {
    QCCL_TRY(const int owner, find_owner(name));
    QCCL_TRY(reach(owner));
    GpuRegistry &all = GpuRegistry::current();
    if (name.process == all.number)
        return reinterpret_cast<std::byte *>(static_cast<uintptr_t>(name.address));
    const std::lock_guard lock(all.mutex);
    GpuRegistry::Opening &opening = all.openings[{device_, name.handle}];
    if (opening.uses == 0) {
        runtime::Handle handle;
        std::memcpy(&handle, name.handle.data(), sizeof handle);
        const Done opened = doing("open memory of another process",
                                  [&] { return runtime::open(&opening.base, handle); });
        if (!opened) {
            all.openings.erase({device_, name.handle});
            return opened.error();
        }
    }
    opening.uses++;
    return static_cast<std::byte *>(opening.base) + name.offset;
}

void ModuleGpu::unmap(const GpuMemoryName &name, std::byte *) {
    GpuRegistry &all = GpuRegistry::current();
    if (name.process == all.number) return;
    const std::lock_guard lock(all.mutex);
    const auto known = all.openings.find({device_, name.handle});
    if (known == all.openings.end() || --known->second.uses > 0) return;
    undo([&] { return runtime::close(known->second.base); });
    all.openings.erase(known);
}

uint32_t count(char *why, size_t why_bytes) {
    int devices = 0;
    const Status status = runtime::count(&devices);
    if (runtime::is_ok(status) && devices > 0) return static_cast<uint32_t>(devices);
    std::snprintf(why, why_bytes, "%s",
                  runtime::is_ok(status) ? "there is none" : runtime::text(status));
    runtime::forget(status);
    return 0;
}

Gpu *open(uint32_t number, Error *error) {
    auto gpu = exception_boundary([&] { return ModuleGpu::open(number); });
    if (gpu) return gpu->release();
    *error = gpu.error();
    return nullptr;
}

} // namespace
} // namespace qccl

extern "C" [[gnu::visibility("default")]] qccl::GpuModuleFunction qccl_gpu_module;

const qccl::GpuModule *qccl_gpu_module() {
    static constexpr qccl::GpuModule module{.abi = qccl::GpuModule::current_abi,
                                            .vendor = qccl::runtime::vendor,
                                            .count = qccl::count,
                                            .open = qccl::open};
    return &module;
}
