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

// Raises this process's limit on descriptors to 4096, or as far as the system allows. Returns how
// many strangers a test may connect: 1000, or a quarter of the limit, because a stranger takes up
// to two descriptors here, its own and the accepted one, and the ranks need theirs.
inline size_t make_room_for_strangers() {
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
