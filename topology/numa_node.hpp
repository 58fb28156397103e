// The NUMA node that a thread is bound to. Knows Linux's files and no ranks.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace qccl {

// As Linux writes sets of CPUs and nodes, "0-3,8"; nothing where it is none.
std::optional<std::vector<uint32_t>> parse_number_list(std::string_view text);

// Of the nodes that `folder` (/sys/devices/system/node) describes, the one that has all of the
// CPUs. Nothing where they lie in several, or where there is but one node or nothing known of any.
std::optional<uint32_t> numa_node_of(const std::vector<uint32_t> &cpus, const std::string &folder);

// Of the CPUs that the calling thread may run on.
std::optional<uint32_t> numa_node_here();

} // namespace qccl
