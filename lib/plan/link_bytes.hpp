// Counts how many bytes a call sends over links of each class, all ranks together. Explanations
// show the counts, which come from the schedules of all ranks. Pure; an object serves one thread.
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

// Returns the class of the path of a message between two ranks.
using LinkClassOf = std::function<LinkClass(uint32_t from, uint32_t to)>;
// Returns the classes for ranks of which only the hosts are known: shared memory within a host, and
// TCP between hosts. `places` (null: one host) has to outlive the result.
LinkClassOf link_class_by_hosts(const RankTopology *places);

using LinkBytes = std::array<uint64_t, link_classes>; // by class

class LinkByteCounter {
public:
    // For more ranks, writing the schedules takes minutes.
    static constexpr uint32_t most_ranks = 1024;

    explicit LinkByteCounter(LinkClassOf link_class) : link_class_(std::move(link_class)) {}

    // Returns the bytes, headers included. `problem` has the plan's codec and places. Schedules are
    // the same for all sizes, types and codecs. The first call for an algorithm, a collective and a
    // root writes them, so the places have to be the same in all calls. An error says why there is
    // no such schedule.
    Result<LinkBytes> count(const Plan &plan, const Problem &problem, const ShapeLimits &limits);

private:
    // How often all ranks together send each chunk.
    struct Sends {
        uint32_t chunks = 0, outbox = 0;
        // Indexed by class, then by whether the inner tiers' codec is used, then by chunk.
        std::array<std::array<std::vector<uint64_t>, 2>, link_classes> times{};
    };

    Result<const Sends *> sends_of(const Algorithm &algorithm, const Problem &problem);
    Result<Sends> count_sends(const Algorithm &algorithm, const Problem &problem) const;

    const LinkClassOf link_class_;
    std::map<std::string, Sends> known_; // by algorithm, collective and root
};

} // namespace qccl
