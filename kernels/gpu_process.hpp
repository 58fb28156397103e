// What a vendor's driver keeps once for a whole process, counted, for all who use its GPUs there.
// Knows no driver.
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
        bool is_ours = false; // else whoever uses QCCL has pinned it
    };
    struct Opening {
        size_t uses = 0;
        void *base = nullptr;
    };

    // A registry of its own for each communicator would pin and open twice what the driver takes
    // once. A forked child is another process, to which the parent's is of no use.
    static GpuProcess &current();

    // Memory that lasts: of a GPU, or of the host, which has a number in the place of a GPU's.
    // Null: there is nothing of that size. Makes room for what is left later, which cannot fail.
    std::byte *take_left(int where, size_t bytes) {
        const std::lock_guard lock(lasting_mutex_);
        Lasting &lasting = lasting_[{where, bytes}];
        if (lasting.left.empty()) {
            lasting.left.reserve(++lasting.pieces);
            return nullptr;
        }
        std::byte *const memory = lasting.left.back();
        lasting.left.pop_back();
        return memory;
    }
    void leave(int where, std::byte *memory, size_t bytes) {
        const std::lock_guard lock(lasting_mutex_);
        lasting_[{where, bytes}].left.push_back(memory);
    }

    const pid_t id = getpid();
    uint64_t number = 0;                              // drawn at random
    std::mutex mutex;                                 // for what follows
    std::map<std::array<std::byte, 16>, int> devices; // that names of memory have named
    std::map<void *, Pin> pins;
    std::map<std::pair<int, std::array<std::byte, 64>>, Opening> openings; // by GPU and handle

private:
    // To free memory waits for all that GPUs do, which may be what its user is waited for with.
    struct Lasting {
        std::vector<std::byte *> left;
        size_t pieces = 0; // that there are, at most
    };
    // A driver's own threads leave something there, too, for whom the driver waits in its calls: so
    // nobody calls it with this one held.
    std::mutex lasting_mutex_;
    std::map<std::pair<int, size_t>, Lasting> lasting_; // by GPU and bytes
};

// No lock, which another thread might hold while a child is forked.
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
