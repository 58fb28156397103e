// qccl-info attach: what the ranks of a job do at the moment, from outside. Knows not where records
// lie.
#pragma once

#include "base/result.hpp"

#include <cstdint>
#include <string>

namespace qccl::perf {

struct AttachQuestion {
    std::string place;       // a process's number, or a folder
    uint32_t last_calls = 0; // of each rank, to be listed
};

Done print_attached(const AttachQuestion &question);

} // namespace qccl::perf
