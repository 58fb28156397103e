// The kernel tables that a test compares with the scalar reference. The program that the test is
// linked into defines them: the CPU's tiers, the emulated GPU, or machine code of AMD GPUs.
#pragma once

#include "device/kernels.hpp"

#include <string>
#include <vector>

struct TestedKernels {
    std::string name;
    const qccl::Kernels *kernels;
    bool (*knows)(const qccl::Codec &codec);
    const qccl::Kernels *operator->() const { return kernels; }
};

const std::vector<TestedKernels> &tested_kernels();
