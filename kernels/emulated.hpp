// A GPU on the CPU: the threads of a block are fibers that run one after the other, and meet where
// the kernel has them meet. What a GPU leaves undefined is an error here: lanes of a warp that meet
// at different places, a thread that ends while others wait for it, and shared memory that two
// threads touch, one of them writing, without a barrier between, save where all of them add. One
// launch per host thread at a time. Shows right results, neither speed nor the ordering of memory
// between blocks.
#pragma once

#include "base/result.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>

namespace qccl::emulated {

struct Grid {
    unsigned blocks = 1, threads = 1, lanes = 32;
};
// In which order the threads of a block run between two meetings: what a kernel computes must not
// depend on it.
enum class Order : uint8_t { forward, reverse };

// Runs `kernel` once as each thread of the grid, block after block. The error says what a GPU would
// have left undefined; memory is then in an undefined state, too.
Done launch(const Grid &grid, Order order, const std::function<void()> &kernel);

// ---- For the thread of a kernel: port.hpp gives these their common names. Lanes meet at a place
// in the source; of its code a compiler may make copies.

unsigned thread();
unsigned block();
unsigned blocks();
// What the lane of the own warp gives whose number differs in the bits of `mask`.
uint64_t exchange(uint64_t value, unsigned mask, const char *file = __builtin_FILE(),
                  unsigned line = __builtin_LINE());
// A bit for each lane of the warp that says yes.
uint64_t ballot(bool yes, const char *file = __builtin_FILE(), unsigned line = __builtin_LINE());
void barrier();
// Lets others run who share the processor: GPUs have theirs for themselves.
void pause();

// ---- Shared memory that knows who touched it.

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
    // Atomic: several threads may, without a barrier between.
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

// The block's array of a kernel's declaration: every thread gets the same.
template <class T> SharedArray<T> shared(size_t count) {
    return SharedArray<T>(reinterpret_cast<T *>(shared_memory(count * sizeof(T), alignof(T))));
}

} // namespace qccl::emulated
