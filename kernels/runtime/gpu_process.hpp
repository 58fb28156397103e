// What a vendor's driver keeps once per process, counted for all users of GPUs in the process:
// pinned memory, opened memory of other processes, and memory that is kept when it is released.
// module.cu uses this state from any thread, under the mutexes below.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include <sys/random.h>
#include <unistd.h>

namespace qccl {

struct GpuProcess {
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
    static GpuProcess &current();

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
inline GpuProcess &GpuProcess::current() {
    static std::atomic<GpuProcess *> current{nullptr};
    GpuProcess *known = current;
    while (!known || known->id != getpid()) {
        auto made = std::make_unique<GpuProcess>();
        if (getrandom(&made->number, sizeof made->number, 0) < 0)
            made->number =
                reinterpret_cast<uintptr_t>(made.get()) ^ static_cast<uint64_t>(made->id);
        if (current.compare_exchange_strong(known, made.get())) known = made.release();
    }
    return *known;
}

} // namespace qccl
