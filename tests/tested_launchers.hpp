// How a test launches kernels by themselves, wherever they run.
#pragma once

#include "kernels/launches.hpp"

#include <string>
#include <vector>

struct TestedLauncher {
    std::string name;
    qccl::Launches::Launch launch;
    // Memory that launches may touch, until it is taken back.
    void (*lend)(void *memory, size_t bytes, bool is_written);
    void (*take_back)(void *memory);
};

const std::vector<TestedLauncher> &tested_launchers();
