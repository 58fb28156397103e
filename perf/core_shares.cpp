// Implements core_shares.hpp by sched_getaffinity(), sched_setaffinity() and /sys.
#include "perf/core_shares.hpp"

#include <algorithm>
#include <fstream>
#include <string>
#include <tuple>

#include <sched.h>

namespace qccl::perf {

namespace {

// Returns a number of a processor's topology, or 0 if the system does not tell.
uint32_t number_in(uint32_t processor, const char *file) {
    std::ifstream stream("/sys/devices/system/cpu/cpu" + std::to_string(processor) + "/topology/" +
                         file);
    uint32_t number = 0;
    stream >> number;
    return number;
}

} // namespace

std::vector<uint32_t> processors_in_order() {
    // The call fails on a machine with more processors than a cpu_set_t can hold.
    cpu_set_t allowed;
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return {};
    std::vector<std::tuple<uint32_t, uint32_t, uint32_t>> places;
    for (uint32_t processor = 0; processor < CPU_SETSIZE; processor++)
        if (CPU_ISSET(processor, &allowed))
            places.emplace_back(number_in(processor, "physical_package_id"),
                                number_in(processor, "core_id"), processor);
    std::ranges::sort(places);
    std::vector<uint32_t> processors;
    for (const auto &[package, core, processor] : places) processors.push_back(processor);
    return processors;
}

std::vector<uint32_t> share_of(const std::vector<uint32_t> &processors, uint32_t rank,
                               uint32_t ranks) {
    const uint64_t count = processors.size();
    if (count == 0) return {};
    const auto from = rank * count / ranks;
    const auto to = std::max(from + 1, (rank + uint64_t{1}) * count / ranks);
    return {processors.begin() + static_cast<ptrdiff_t>(from),
            processors.begin() + static_cast<ptrdiff_t>(to)};
}

void stay_on(const std::vector<uint32_t> &processors) {
    if (processors.empty()) return;
    cpu_set_t set;
    CPU_ZERO(&set);
    for (const uint32_t processor : processors) CPU_SET(processor, &set);
    (void)sched_setaffinity(0, sizeof set, &set);
}

} // namespace qccl::perf
