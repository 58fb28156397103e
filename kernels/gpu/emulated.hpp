// Runs GPU kernels on the CPU, for the emulated runtime and for tests. The threads of a block are
// fibers that run one after the other and meet where the kernel makes them meet. Each host thread
// runs one launch at a time; launch() returns when the kernel has ended.
//
// Behaviour that a GPU leaves undefined is an error: lanes of a warp that meet at different places,
// a thread that ends while others wait for it, and shared memory that two threads access without a
// barrier in between if one of them writes, unless all of them add. The emulation shows whether
// results are right. It shows neither speed nor the ordering of memory between blocks.
//
// launch_emulated() launches the library's own kernels.
#pragma once

#include "base/result.hpp"
#include "device/batch.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>

namespace qccl::emulated {

struct Grid {
    unsigned blocks = 1, threads = 1, lanes = 32;
};
// Order in which the threads of a block run between two meetings. The result of a kernel must not
// depend on this order.
enum class Order : uint8_t { forward, reverse };

// Runs `kernel` once as each thread of the grid, block after block. The error says what a GPU would
// have left undefined; the memory that the kernel writes is then undefined, too.
Done launch(const Grid &grid, Order order, const std::function<void()> &kernel);

// ---- For the threads of a kernel; port.hpp gives these functions their common names. A meeting
// place is a source location, because a compiler may copy the code.

unsigned thread();
unsigned block();
unsigned blocks();
// Returns the `value` of the lane of the same warp whose number differs in the bits of `mask`.
uint64_t exchange(uint64_t value, unsigned mask, const char *file = __builtin_FILE(),
                  unsigned line = __builtin_LINE());
// Returns a bit for each lane of the warp whose `yes` is true.
uint64_t ballot(bool yes, const char *file = __builtin_FILE(), unsigned line = __builtin_LINE());
void barrier();
// Lets other threads run that share the processor. A real GPU has its processors for itself.
void pause();

// ---- Shared memory that records which thread accesses it.

std::byte *shared_memory(size_t bytes, size_t alignment);
void note_read(const void *at, size_t bytes);
void note_write(const void *at, size_t bytes);
void note_add(const void *at, size_t bytes);

template <class T> class SharedCell {
public:
    explicit SharedCell(T *at) : at_(at) {}
    operator T() const {
        note_read(at_, sizeof(T));
        return *at_;
    }
    const SharedCell &operator=(T value) const {
        note_write(at_, sizeof(T));
        *at_ = value;
        return *this;
    }
    const SharedCell &operator=(const SharedCell &other) const { return *this = T(other); }
    // Atomic: several threads may add without a barrier in between.
    void add(T value) const {
        note_add(at_, sizeof(T));
        *at_ = static_cast<T>(*at_ + value);
    }

private:
    T *at_;
};

template <class T> class SharedArray {
public:
    explicit SharedArray(T *start) : start_(start) {}
    SharedCell<T> operator[](size_t i) const { return SharedCell<T>(start_ + i); }

private:
    T *start_;
};

// Returns the array that a kernel declares; every thread of the block gets the same array.
template <class T> SharedArray<T> shared(size_t count) {
    return SharedArray<T>(reinterpret_cast<T *>(shared_memory(count * sizeof(T), alignof(T))));
}

} // namespace qccl::emulated

namespace qccl {

// ---- QCCL's kernels

// Runs a kernel on an emulated GPU with `lanes` lanes per warp, 32 or 64, and waits for the
// kernel. The error is that of emulated::launch.
Done launch_emulated(unsigned lanes, emulated::Order order, KernelId kernel, unsigned blocks,
                     const Batch &batch);

} // namespace qccl
