// Lets a test launch kernels by themselves, wherever they run. The program that the test is linked
// into provides the list.
#pragma once

#include "device/kernel_launcher.hpp"

#include <string>
#include <vector>

struct TestedLauncher {
    std::string name;
    qccl::KernelLauncher::Launch launch;
    // A launch may touch the memory from `lend` until `take_back`.
    void (*lend)(void *memory, size_t bytes, bool is_written);
    void (*take_back)(void *memory);
};

const std::vector<TestedLauncher> &tested_launchers();
