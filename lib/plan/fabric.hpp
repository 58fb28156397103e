// What the simulator sees of a machine, as plain numbers: links that carry bytes and are shared
// fairly, the way of a message between two ranks, and the cores that ranks compute on. Pure data:
// any thread, nothing blocks. A Fabric holds O(1) memory for each rank, so that thousands of ranks
// are possible.
#pragma once

#include "plan/cost.hpp"
#include "schedule/places.hpp"

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace qccl {

// The way of a message from one rank to another.
struct MessageRoute {
    static constexpr uint32_t most_links = 8;

    std::array<uint32_t, most_links> numbers{};
    uint32_t count = 0;
    double latency_ns = 0;       // from the last byte's departure until the receiver can go on
    double send_ns = 0;          // of the sender's core, for each message
    double recv_ns = 0;          // of the receiver's
    bool is_by_reference = true; // the receiver reads the bytes in the sender's memory

    std::span<const uint32_t> links() const & { return std::span(numbers).first(count); }
    std::span<const uint32_t> links() const && = delete; // of what is gone
    void add(uint32_t link) { numbers[count++] = link; }
};

class Fabric {
public:
    virtual ~Fabric() = default;

    virtual uint32_t ranks() const = 0;
    // Directed links are numbered from 0 on.
    virtual uint32_t links() const = 0;
    virtual double bytes_per_ns(uint32_t link) const = 0;
    // "host 3's line up"; for people.
    virtual std::string link_name(uint32_t link) const = 0;
    // `from` and `to` are two ranks.
    virtual MessageRoute route(uint32_t from, uint32_t to) const = 0;

    // Ranks of one group compute on the same cores, of which each has a fair share; at most one
    // core for a rank. Groups are numbered from 0 on.
    virtual uint32_t core_groups() const = 0;
    virtual uint32_t core_group(uint32_t rank) const = 0;
    virtual double cores(uint32_t group) const = 0;
};

// A machine of hosts, with NUMA nodes inside and racks around them. Rates are bytes a nanosecond
// (GB/s); a rate of 0 says that such a link is no bottleneck, and none is made.
struct TieredRates {
    // Within a host.
    double latency_ns = 400;
    double message_ns = 150; // of a core, for a message sent or received
    double rank_rate = 20;   // that one rank sends or receives with
    double node_rate = 0;    // of a NUMA node's memory, all its ranks together
    double cross_rate = 0;   // between a host's NUMA nodes, each direction
    // Between hosts.
    double far_latency_ns = 30000;
    double far_message_ns = 3000;
    double line_rate = 0.125;   // of a host's line, each direction
    double rack_rate = 0;       // of a rack's line to the others, each direction
    double rack_latency_ns = 0; // that it adds
    // A host's cores; 0: each rank has its own.
    double cores = 0;
    double turn_ns = 4000; // until a rank that shares its core has its turn
};

// As the planner has them.
TieredRates tiered_rates(const Speeds &speeds);

// `places`: of `ranks` ranks; null: all are on one host. Kept by the fabric no longer than the
// call.
std::unique_ptr<Fabric> make_tiered_fabric(uint32_t ranks, const Places *places,
                                           const TieredRates &rates);

} // namespace qccl
