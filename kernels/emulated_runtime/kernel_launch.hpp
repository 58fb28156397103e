// Puts kernels into streams of the emulated GPU: QCCL's own kernels and those of programs. As on a
// GPU, QCCL's kernels fail if they access host memory that the GPU does not reach.
#pragma once

#include "kernels/batch.hpp"
#include "kernels/emulated_runtime/runtime.hpp"
#include "kernels/kernel_list.hpp"

namespace qccl::emulated {

// Puts one of QCCL's kernels into a stream. Behaves like a call of the C API: takes the runtime's
// mutex and may be called from any thread.
qcclEmulatedResult_t launch(qcclEmulatedStream_t stream, KernelId kernel, unsigned blocks,
                            const Batch &batch);

// Puts a program's kernel into a stream and copies `bytes` bytes of its argument. The caller holds
// the runtime's mutex.
Outcome put_kernel(Runtime &runtime, const StreamPtr &stream, qcclEmulatedKernel_t kernel,
                   unsigned blocks, unsigned threads, const void *argument, size_t bytes);

} // namespace qccl::emulated
