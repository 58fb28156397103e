// How many bytes a call sends over links of each class, all ranks together: for explanations.
// Counted on the schedules of all ranks. Pure; an object serves one thread.
#pragma once

#include "base/result.hpp"
#include "plan/link_class.hpp"
#include "plan/planner.hpp"

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace qccl {

// Of a message between two ranks.
using LinkClassOf = std::function<LinkClass(uint32_t from, uint32_t to)>;
// For ranks of which only the hosts are known: shared memory, and TCP between hosts.
LinkClassOf link_class_by_hosts(const Places *places);

using LinkBytes = std::array<uint64_t, link_classes>; // by class

class LinkByteCounter {
public:
    // Writing the schedules of more takes minutes.
    static constexpr uint32_t most_ranks = 1024;

    explicit LinkByteCounter(LinkClassOf link_class) : link_class_(std::move(link_class)) {}

    // Headers included. `problem` with the plan's codec and places. Schedules are the same for all
    // sizes, types and codecs: they are written at the first call for an algorithm, a collective, a
    // root and places. An error says why there is no such schedule.
    Result<LinkBytes> count(const Plan &plan, const Problem &problem, const ShapeLimits &limits);

private:
    // Of all ranks: how often a chunk is sent.
    struct Sends {
        uint32_t chunks = 0, outbox = 0;
        // By class and whether it is with the inner tiers' codec; then by chunk.
        std::array<std::array<std::vector<uint64_t>, 2>, link_classes> times{};
    };

    Result<const Sends *> sends_of(const Algorithm &algorithm, const Problem &problem);
    Result<Sends> count_sends(const Algorithm &algorithm, const Problem &problem) const;

    const LinkClassOf link_class_;
    std::map<std::string, Sends> known_; // by algorithm, collective and root
};

} // namespace qccl
