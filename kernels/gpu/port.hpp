// The one file of the kernels that depends on the GPU's vendor: how functions are marked, and what
// lanes, warps and blocks are. There are three targets: NVIDIA, AMD, and the CPU, which runs a
// GPU's kernels in lockstep (emulated.hpp), compiled once for 32 and once for 64 lanes.
//
// A warp is the unit that runs in lockstep, NVIDIA's warp or AMD's wavefront; a lane is one of its
// threads.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#if defined(__CUDACC__)
#include <cuda_runtime.h>
#elif defined(__HIP__)
#include <hip/hip_runtime.h>
#elif defined(QCCL_EMULATED_LANES)
#include "kernels/gpu/emulated.hpp"
#endif

#if defined(__CUDACC__) || defined(__HIP__)
#define QCCL_IS_GPU 1
#define QCCL_GPU gpu
#define QCCL_DEVICE __device__ __forceinline__
#define QCCL_SHARED(T, name, count) __shared__ T name[count]
// `threads`: the threads of a block. `resident`: how many blocks a multiprocessor should have
// registers for.
#ifdef __CUDACC__
#define QCCL_KERNEL(threads, resident) __global__ __launch_bounds__(threads, resident) void
#define QCCL_ARGUMENT(T) const __grid_constant__ T // read in place, also with computed indices
#else
#define QCCL_KERNEL(threads, resident) __global__ __launch_bounds__(threads) void
#define QCCL_ARGUMENT(T) const T
#endif
#elif defined(QCCL_EMULATED_LANES)
#define QCCL_IS_GPU 1
#define QCCL_GPU_OF_LANES(lanes) gpu##lanes
#define QCCL_GPU_OF(lanes) QCCL_GPU_OF_LANES(lanes)
#define QCCL_GPU QCCL_GPU_OF(QCCL_EMULATED_LANES) // one program has the kernels of both widths
#define QCCL_DEVICE inline
#define QCCL_KERNEL(threads, resident) static void
#define QCCL_SHARED(T, name, count) const auto name = emulated::shared<T>(count)
#define QCCL_ARGUMENT(T) const T
#endif

#ifdef QCCL_IS_GPU
namespace qccl::QCCL_GPU {

#if defined(__CUDACC__)
inline constexpr unsigned lanes = 32;
#elif defined(__HIP__)
// The compiler's host pass also sees a width but does not use the width.
#if defined(__HIP_DEVICE_COMPILE__) && !defined(__GFX9__)
inline constexpr unsigned lanes = 32;
#else
inline constexpr unsigned lanes = 64;
#endif
#else
inline constexpr unsigned lanes = QCCL_EMULATED_LANES;
#endif

// ---- Where a thread is

#if defined(__CUDACC__) || defined(__HIP__)
QCCL_DEVICE unsigned thread() { return threadIdx.x; } // in its block
QCCL_DEVICE unsigned block() { return blockIdx.x; }
QCCL_DEVICE unsigned blocks() { return gridDim.x; }
#else
inline unsigned thread() { return emulated::thread(); }
inline unsigned block() { return emulated::block(); }
inline unsigned blocks() { return emulated::blocks(); }
#endif
QCCL_DEVICE unsigned lane() { return thread() % lanes; }
QCCL_DEVICE unsigned warp() { return thread() / lanes; }

// ---- What lanes do together. All lanes of the warp, or all threads of the block, must call.

// The source location at which lanes meet; the emulation compares the locations.
#if defined(QCCL_EMULATED_LANES)
#define QCCL_SITE , const char *file = __builtin_FILE(), unsigned line = __builtin_LINE()
#else
#define QCCL_SITE
#endif

// Returns the `value` of the lane whose number differs in the bits of `mask`. T has 4 or 8 bytes.
template <class T> QCCL_DEVICE T shuffle_xor(T value, unsigned mask QCCL_SITE) {
    static_assert(sizeof(T) == 4 || sizeof(T) == 8);
    using Word = std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>;
#if defined(__CUDACC__)
    const Word other = __shfl_xor_sync(~0U, std::bit_cast<Word>(value), static_cast<int>(mask));
#elif defined(__HIP__)
    const Word other = __shfl_xor(std::bit_cast<Word>(value), static_cast<int>(mask));
#else
    const Word other =
        static_cast<Word>(emulated::exchange(std::bit_cast<Word>(value), mask, file, line));
#endif
    return std::bit_cast<T>(other);
}

// Returns true if `holds` is true in any lane of the warp.
QCCL_DEVICE bool any(bool holds QCCL_SITE) {
#if defined(__CUDACC__)
    return __any_sync(~0U, holds) != 0;
#elif defined(__HIP__)
    return __ballot(holds) != 0;
#else
    return emulated::ballot(holds, file, line) != 0;
#endif
}

// Returns a bit for each lane of the warp: the lane's `holds`.
QCCL_DEVICE uint64_t ballot(bool holds QCCL_SITE) {
#if defined(__CUDACC__)
    return __ballot_sync(~0U, holds);
#elif defined(__HIP__)
    return __ballot(holds);
#else
    return emulated::ballot(holds, file, line);
#endif
}

// The block's threads wait for each other; writes before the barrier are visible behind it.
QCCL_DEVICE void barrier() {
#if defined(__CUDACC__)
    __syncthreads();
#elif defined(__HIP__)
    // This is HIP's __syncthreads() without the library that some versions of HIP need for it.
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
    __builtin_amdgcn_s_barrier();
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
#else
    emulated::barrier();
#endif
}

// ---- Sums to which many threads add, in any order

// In global memory: threads of any block may add. Only the next launch may read the sum.
QCCL_DEVICE void atomic_add(uint64_t *sum, uint64_t value) {
#if defined(__CUDACC__)
    atomicAdd(reinterpret_cast<unsigned long long *>(sum), value);
#elif defined(__HIP__)
    __hip_atomic_fetch_add(sum, value, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
#else
    __atomic_fetch_add(sum, value, __ATOMIC_RELAXED);
#endif
}

// In shared memory: threads of the same block may add. The sum may be read behind a barrier.
#if defined(QCCL_EMULATED_LANES)
inline void atomic_add(const emulated::SharedCell<uint32_t> &sum, uint32_t value) {
    sum.add(value);
}
#else
QCCL_DEVICE void atomic_add(uint32_t &sum, uint32_t value) {
#if defined(__CUDACC__)
    atomicAdd(&sum, value);
#else
    __hip_atomic_fetch_add(&sum, value, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_WORKGROUP);
#endif
}
#endif

// ---- Flag words between GPUs of a machine. A GPU that loads a flag's new value sees what was
// written by the launches before the one that stored it.

QCCL_DEVICE void flag_store(uint64_t *word, uint64_t value) {
#if defined(__CUDACC__)
    __threadfence_system();
    asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(word), "l"(value) : "memory");
#elif defined(__HIP__)
    __hip_atomic_store(word, value, __ATOMIC_RELEASE, __HIP_MEMORY_SCOPE_SYSTEM);
#else
    __atomic_store_n(word, value, __ATOMIC_RELEASE);
#endif
}
QCCL_DEVICE uint64_t flag_load(const uint64_t *word) {
#if defined(__CUDACC__)
    uint64_t value = 0;
#ifdef __CUDA_ARCH__
    asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(word) : "memory");
#endif
    return value;
#elif defined(__HIP__)
    return __hip_atomic_load(word, __ATOMIC_ACQUIRE, __HIP_MEMORY_SCOPE_SYSTEM);
#else
    return __atomic_load_n(word, __ATOMIC_ACQUIRE);
#endif
}
// Waits between two polls of a word: a good part of a microsecond.
QCCL_DEVICE void pause() {
#if defined(__CUDACC__)
    __nanosleep(300);
#elif defined(__HIP__)
    __builtin_amdgcn_s_sleep(8); // times 64 cycles
#else
    emulated::pause();
#endif
}

// ---- The arguments of a kernel

// Returns the kernel's only argument where the driver has put it. Clang sometimes keeps a copy for
// each lane of an argument that is read with computed indices.
template <class T> QCCL_DEVICE const T &in_place(const T &argument) {
#if defined(__HIP_DEVICE_COMPILE__)
    (void)argument;
    return *(const T *)__builtin_amdgcn_kernarg_segment_ptr(); // from another address space
#else
    return argument;
#endif
}

// Returns the number of the lowest bit that is set; there must be one. <bit> is not for kernels:
// nvcc accepts std::countr_zero and computes something else.
QCCL_DEVICE unsigned lowest_bit(uint32_t bits) {
#if defined(__CUDACC__) || defined(__HIP__)
    return static_cast<unsigned>(__ffs(static_cast<int>(bits))) - 1;
#else
    return static_cast<unsigned>(std::countr_zero(bits));
#endif
}

// Returns a word of four bytes, from the lowest up, each by its number: 0 ... 3 are the bytes of
// `a`, 4 ... 7 those of `b`.
QCCL_DEVICE uint32_t bytes_of(uint32_t a, uint32_t b, unsigned n0, unsigned n1, unsigned n2,
                              unsigned n3) {
#if defined(__CUDACC__)
    return __byte_perm(a, b, n0 | n1 << 4 | n2 << 8 | n3 << 12);
#elif defined(__HIP__)
    return __builtin_amdgcn_perm(b, a, n0 | n1 << 8 | n2 << 16 | n3 << 24);
#else
    const auto byte = [both = uint64_t{b} << 32 | a](unsigned n) {
        return static_cast<uint32_t>(both >> (8 * n) & 0xFF);
    };
    return byte(n0) | byte(n1) << 8 | byte(n2) << 16 | byte(n3) << 24;
#endif
}

} // namespace qccl::QCCL_GPU
#endif
