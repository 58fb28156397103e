#include "perf/processor.hpp"

#include <fstream>

namespace qccl::perf {

std::string processor_name() {
    std::ifstream info("/proc/cpuinfo");
    for (std::string line; std::getline(info, line);)
        if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
    return "a processor without a name";
}

} // namespace qccl::perf
