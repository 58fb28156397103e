// Lists the descriptors that this process holds, for tests that check that none is left open.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

// Every list includes the descriptor with which the folder is read here.
inline std::vector<int> open_descriptors() {
    std::vector<int> numbers;
    for (const auto &entry : std::filesystem::directory_iterator("/proc/self/fd"))
        numbers.push_back(std::stoi(entry.path().filename()));
    return numbers;
}

inline size_t count_descriptors() { return open_descriptors().size(); }
