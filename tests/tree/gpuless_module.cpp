// A GPU module as on a machine without the driver of the vendor: the module loads and reports no
// GPU. A test loads it in place of the real module.
#include "device/gpu.hpp"

#include <cstdio>

static uint32_t count_none(char *why, size_t why_bytes) {
    std::snprintf(why, why_bytes, "there is no driver");
    return 0;
}

static qccl::Gpu *open_none(uint32_t, qccl::Error *error) {
    *error = qccl::Error::make(qccl::Code::internal_error, "a GPU was opened that does not exist");
    return nullptr;
}

extern "C" __attribute__((visibility("default"))) qccl::GpuModuleFunction qccl_gpu_module;

const qccl::GpuModule *qccl_gpu_module() {
    static const qccl::GpuModule module = {.abi = qccl::GpuModule::current_abi,
                                           .vendor = "cuda",
                                           .count = count_none,
                                           .open = open_none};
    return &module;
}
