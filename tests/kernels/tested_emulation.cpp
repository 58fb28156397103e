// Provides the GPU kernels on the emulated GPU for tests of kernels: with 32 and with 64 lanes,
// with the threads run forward and backward.
#include "launched_kernels.hpp"
#include "tested_kernels.hpp"
#include "tested_launchers.hpp"

#include "kernels/gpu/emulated.hpp"

using namespace qccl;
using emulated::Order;

namespace {

template <unsigned lanes, Order order> struct Emulation {
    static Done launch(void *, KernelId kernel, unsigned blocks, const Batch &batch) {
        return launch_emulated(lanes, order, kernel, blocks, batch);
    }
    static void lend(void *, size_t, bool) {} // the emulated GPU reaches all memory
    static void take_back(void *) {}
};

template <unsigned lanes, Order order>
constexpr const Kernels *emulation = &LaunchedKernels<Emulation<lanes, order>>::kernels;

template <unsigned lanes, Order order> TestedLauncher launcher(const char *name) {
    using Gpu = Emulation<lanes, order>;
    return {name, Gpu::launch, Gpu::lend, Gpu::take_back};
}

} // namespace

const std::vector<TestedKernels> &tested_kernels() {
    static const std::vector<TestedKernels> tested = {
        {"32 lanes", emulation<32, Order::forward>, KernelLauncher::knows},
        {"64 lanes", emulation<64, Order::forward>, KernelLauncher::knows},
        {"32 lanes backward", emulation<32, Order::reverse>, KernelLauncher::knows},
        {"64 lanes backward", emulation<64, Order::reverse>, KernelLauncher::knows}};
    return tested;
}

const std::vector<TestedLauncher> &tested_launchers() {
    static const std::vector<TestedLauncher> tested = {
        launcher<32, Order::forward>("32 lanes"), launcher<64, Order::forward>("64 lanes"),
        launcher<32, Order::reverse>("32 lanes backward"),
        launcher<64, Order::reverse>("64 lanes backward")};
    return tested;
}
