// Kernels in streams of the emulated GPU: QCCL's own, and those of programs. Knows no memory of the
// host that GPUs do not reach: a kernel that touches it fails, as on a GPU.
#pragma once

#include "kernels/batch.hpp"
#include "kernels/emulated_runtime/runtime.hpp"
#include "kernels/kernel_list.hpp"

namespace qccl::emulated {

// A call as those of the C API are.
qcclEmulatedResult_t launch(qcclEmulatedStream_t stream, KernelId kernel, unsigned blocks,
                            const Batch &batch);

// With the mutex held.
Outcome put_kernel(Runtime &runtime, const StreamPtr &stream, qcclEmulatedKernel_t kernel,
                   unsigned blocks, unsigned threads, const void *argument, size_t bytes);

} // namespace qccl::emulated
