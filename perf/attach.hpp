// qccl-info attach: shows from outside what the ranks of a running job are doing. Used by
// qccl-info. Blocks for about 100 ms between two readings of the ranks' records.
#pragma once

#include "base/result.hpp"

#include <cstdint>
#include <string>

namespace qccl::perf {

struct AttachQuestion {
    std::string place;       // a pid, or a folder with records
    uint32_t last_calls = 0; // how many calls of each rank to list
};

Done print_attached(const AttachQuestion &question);

} // namespace qccl::perf
