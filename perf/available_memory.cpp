// Reads MemAvailable from /proc/meminfo.
#include "perf/available_memory.hpp"

#include <fstream>
#include <string>

namespace qccl::perf {

std::optional<uint64_t> available_memory_bytes() {
    std::ifstream info("/proc/meminfo");
    for (std::string name; info >> name;) {
        uint64_t kibibytes = 0;
        if (name == "MemAvailable:" && info >> kibibytes) return kibibytes * 1024;
        info.ignore(1000, '\n');
    }
    return std::nullopt;
}

} // namespace qccl::perf
