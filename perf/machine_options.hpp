// The machine that a tool is asked about, which need not be this one: how many ranks on which
// hosts, and how fast its links are. What the planner and the simulator see of it. Reads the
// settings (QCCL_LINK_RATE and its like); any thread.
#pragma once

#include "base/result.hpp"
#include "plan/fabric.hpp"
#include "plan/planner.hpp"

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

namespace qccl::perf {

// A job has no more, see bootstrap/; and a typing error should not cost all memory.
inline constexpr uint32_t most_ranks_asked = 65536;

struct MachineQuestion {
    uint32_t ranks = 0;
    std::shared_ptr<const Places> places = nullptr; // null: all are on one host
    // Of a host's line; nothing: as the settings say, or the planner's defaults.
    std::optional<uint64_t> bytes_per_second = {};
    std::optional<std::chrono::nanoseconds> latency = {};
    std::optional<double> cores = {}; // of each host; nothing: as many as this machine has
    Pieces pieces = {};               // into which the call is cut, if the settings do not say it
};

// "2,2,3": a host of so many ranks after the other. "2,2,3:round" deals the ranks out to the hosts
// in turn. "1+2,2/4": the first host has two nodes, the last one is in another rack.
// "64x8": 64 hosts of 8 ranks. An error says what is expected.
Result<std::shared_ptr<const Places>> parse_hosts(const std::string &text);

double cores_of(const MachineQuestion &question);
// The planner's tables of a communicator there with these settings. An error names the setting that
// is refused.
Result<Tables> tables_of(const MachineQuestion &question);
Result<std::unique_ptr<Fabric>> fabric_of(const MachineQuestion &question, const Tables &tables);

} // namespace qccl::perf
