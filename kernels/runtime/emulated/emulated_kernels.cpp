// Selects the kernels of the warp width, 32 or 64 lanes, that a launch on the emulated GPU asks
// for.
#include "kernels/gpu/emulated.hpp"

namespace qccl {

// codec_kernels.cu defines these, once per width.
namespace gpu32 {
using KernelFunction = void (*)(Batch batch);
KernelFunction kernel(KernelId id);
} // namespace gpu32
namespace gpu64 {
using KernelFunction = void (*)(Batch batch);
KernelFunction kernel(KernelId id);
} // namespace gpu64

Done launch_emulated(unsigned lanes, emulated::Order order, KernelId kernel, unsigned blocks,
                     const Batch &batch) {
    const auto function = lanes == 32 ? gpu32::kernel(kernel) : gpu64::kernel(kernel);
    return emulated::launch({.blocks = blocks, .threads = block_threads, .lanes = lanes}, order,
                            [&] { function(batch); });
}

} // namespace qccl
