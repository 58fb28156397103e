// Gives the kernel tests the machine code that the compiler made for AMD GPUs: gfx1100 (waves of 32
// lanes) and gfx942 (waves of 64 lanes).
#include "wave_launch.hpp"
#include "tests/kernels/launched_kernels.hpp"
#include "tests/kernels/tested_kernels.hpp"
#include "tests/kernels/tested_launchers.hpp"

namespace amdgpu {
extern const CodeObject codecs_gfx1100, codecs_gfx942;
} // namespace amdgpu

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

const std::vector<TestedLauncher> &tested_launchers() {
    static const std::vector<TestedLauncher> tested = {launcher<amdgpu::codecs_gfx1100>("gfx1100"),
                                                       launcher<amdgpu::codecs_gfx942>("gfx942")};
    return tested;
}

const std::vector<TestedKernels> &tested_kernels() {
    static const std::vector<TestedKernels> tested = {
        {"gfx1100", &LaunchedKernels<MachineCode<amdgpu::codecs_gfx1100>>::kernels,
         KernelLauncher::knows},
        {"gfx942", &LaunchedKernels<MachineCode<amdgpu::codecs_gfx942>>::kernels,
         KernelLauncher::knows}};
    return tested;
}
