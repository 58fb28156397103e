// Gives the kernel tests the machine code that the compiler made for AMD GPUs. The build defines
// TESTED_TARGETS: TARGET(gfx942) or TARGET(gfx1100), or both.
#include "wave_launch.hpp"
#include "tests/kernels/launched_kernels.hpp"
#include "tests/kernels/tested_kernels.hpp"
#include "tests/kernels/tested_launchers.hpp"

#define TARGET(name) extern const CodeObject codecs_##name;
namespace amdgpu {
TESTED_TARGETS
} // namespace amdgpu
#undef TARGET

using namespace qccl;
using amdgpu::Memory;

namespace {

template <const amdgpu::CodeObject &code> struct MachineCode {
    static amdgpu::Gpu &gpu() {
        static amdgpu::Gpu only(code);
        return only;
    }
    static Done launch(void *, KernelId kernel, unsigned blocks, const Batch &batch) {
        const std::string name = "qccl::gpu::" + std::string(qccl::name(kernel));
        const std::string outcome = gpu().launch(name.c_str(), {{blocks}, {block_threads}}, batch);
        if (outcome.empty()) return {};
        return Error::make(Code::unhandled_device_error, "%s", outcome.c_str());
    }
    static void lend(void *memory, size_t bytes, bool is_written) {
        gpu().memory().lend(memory, bytes,
                            is_written ? Memory::Use::read_write : Memory::Use::read_only);
    }
    static void take_back(void *memory) { gpu().memory().forget(memory); }
};

template <const amdgpu::CodeObject &code> TestedLauncher launcher(const char *name) {
    using Gpu = MachineCode<code>;
    return {name, Gpu::launch, Gpu::lend, Gpu::take_back};
}

} // namespace

#define TARGET(name) launcher<amdgpu::codecs_##name>(#name),
const std::vector<TestedLauncher> &tested_launchers() {
    static const std::vector<TestedLauncher> tested = {TESTED_TARGETS};
    return tested;
}
#undef TARGET

#define TARGET(name)                                                                               \
    {#name, &LaunchedKernels<MachineCode<amdgpu::codecs_##name>>::kernels, KernelLauncher::knows},
const std::vector<TestedKernels> &tested_kernels() {
    static const std::vector<TestedKernels> tested = {TESTED_TARGETS};
    return tested;
}
#undef TARGET
