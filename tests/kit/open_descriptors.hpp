// Lists the descriptors that this process holds, for tests that check that none is left open, and
// limits how many it may hold, for tests of what a lack of them does.
#pragma once

#include "tests/kit/qtest.hpp"

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include <sys/resource.h>
#include <unistd.h>

// Every list includes the descriptor with which the folder is read here.
inline std::vector<int> open_descriptors() {
    std::vector<int> numbers;
    for (const auto &entry : std::filesystem::directory_iterator("/proc/self/fd"))
        numbers.push_back(std::stoi(entry.path().filename()));
    return numbers;
}

inline size_t count_descriptors() { return open_descriptors().size(); }

// Raises the limit of this process as far as it can be raised, and returns how many strangers may
// connect within this process: a thousand, or fewer where the system allows fewer descriptors.
inline size_t most_strangers() {
    rlimit limit{};
    CHECK_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
    limit.rlim_cur = std::min<rlim_t>(limit.rlim_max, 4096);
    CHECK_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
    return std::min<size_t>(1000, limit.rlim_cur / 4);
}

// Until the object's end this process may open descriptors below the number `most`.
class DescriptorLimit {
public:
    explicit DescriptorLimit(rlim_t most) {
        CHECK_EQ(getrlimit(RLIMIT_NOFILE, &before_), 0);
        const rlimit changed{most, before_.rlim_max};
        CHECK_EQ(setrlimit(RLIMIT_NOFILE, &changed), 0);
    }
    ~DescriptorLimit() { setrlimit(RLIMIT_NOFILE, &before_); }
    DescriptorLimit(const DescriptorLimit &) = delete;

    // The limit with which `spare` more descriptors can be opened now.
    static rlim_t with_spare(rlim_t spare) {
        const int lowest_free = dup(0);
        close(lowest_free);
        return static_cast<rlim_t>(lowest_free) + spare;
    }

private:
    rlimit before_{};
};
