// The tables of kernels that a test compares with the scalar reference: which ones they are is the
// business of the program that the test is linked into: the CPU's tiers, the emulated GPU, or
// machine code of AMD GPUs.
#pragma once

#include "kernels/kernels.hpp"

#include <string>
#include <vector>

struct TestedKernels {
    std::string name;
    const qccl::Kernels *kernels;
    bool (*knows)(const qccl::Codec &codec);
    const qccl::Kernels *operator->() const { return kernels; }
};

const std::vector<TestedKernels> &tested_kernels();
