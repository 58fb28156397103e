// The machine as the simulator sees it, in plain numbers: links that carry bytes and are shared
// fairly, the route of a message between two ranks, and the cores that ranks compute on. Used by
// the simulator, the topology graph and the tools. Pure data: any thread, nothing blocks. A Fabric
// holds O(1) memory for each rank, so that thousands of ranks are possible.
#pragma once

#include "plan/cost.hpp"
#include "schedule/rank_topology.hpp"

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace qccl {

// The route of a message from one rank to another.
struct MessageRoute {
    static constexpr uint32_t most_links = 8;

    // Time of a core for a message that is sent or received, and for each of its bytes.
    struct Work {
        double message_ns = 0, byte_ns = 0;
    };

    std::array<uint32_t, most_links> numbers{};
    uint32_t count = 0;
    double latency_ns = 0; // from the last byte's departure until the receiver can go on
    // A larger message waits at its sender until the receiver has asked for it (rendezvous).
    uint64_t eager_bytes = UINT64_MAX;
    double rendezvous_ns = 0;
    Work send, recv;
    bool is_by_reference = true; // the receiver reads the bytes in the sender's memory

    std::span<const uint32_t> links() const & { return std::span(numbers).first(count); }
    std::span<const uint32_t> links() const && = delete; // the span would outlive its route
    void add(uint32_t link) { numbers[count++] = link; }
};

class Fabric {
public:
    virtual ~Fabric() = default;

    virtual uint32_t ranks() const = 0;
    // Directed links are numbered from 0.
    virtual uint32_t links() const = 0;
    virtual double bytes_per_ns(uint32_t link) const = 0;
    // Bytes that the link passes at once after a pause.
    virtual double burst_bytes(uint32_t link) const = 0;
    // Returns a name for people, for example "host 3's line up".
    virtual std::string link_name(uint32_t link) const = 0;
    // Returns the route of a message between two ranks. `is_eager`: the call's values go through
    // eager slots where ranks share memory.
    virtual MessageRoute route(uint32_t from, uint32_t to, bool is_eager) const = 0;

    // Ranks of one group compute on the same cores. Each rank has a fair share of them, and at most
    // one core. Groups are numbered from 0.
    virtual uint32_t core_groups() const = 0;
    virtual uint32_t core_group(uint32_t rank) const = 0;
    virtual double cores(uint32_t group) const = 0;
    virtual std::string cores_name(uint32_t group) const = 0;
};

// A machine of hosts, with NUMA nodes inside and racks around them. Rates are bytes a nanosecond
// (GB/s). A rate of 0 means that such a link is no bottleneck; the fabric then has no such link.
struct TieredRates {
    // Costs of messages, for ranks that have a core each and for ranks that share cores. On a
    // shared core a message waits for as many turns as there are ranks on it.
    CostModel::Link near = CostModel().near, eager = CostModel().eager; // within a host
    CostModel::Link far = CostModel().far;                              // between hosts
    // The sender's part of what both ends of a message between hosts spend.
    double far_send_share = 0.5;
    // A larger message waits at its sender until the receiver has asked for it, which takes
    // rendezvous_ns.
    uint64_t far_eager_bytes = UINT64_MAX;
    double rendezvous_ns = 0;
    double rank_rate = 0;     // of what one rank sends or receives within its host
    double node_rate = 0;     // of a NUMA node's memory, for all its ranks together
    double cross_rate = 0;    // between a host's NUMA nodes, each direction
    double line_rate = 0.125; // of a host's network link, each direction
    double line_burst_bytes = 0;
    double rack_rate = 0;       // of a rack's link to other racks, each direction
    double rack_latency_ns = 0; // that a rack's link adds
    // Cores of a host; 0: each rank has its own.
    double cores = 0;
    // The speed of a core while all cores compute, relative to one that computes alone: less than 1
    // where processors are threads of the same cores.
    double busy_core = 1;
    bool hosts_share_cores = false; // hosts are namespaces on one machine and share these cores
};

// Return the costs of a message apart from its links, within a host and between hosts. `sharers`:
// ranks on a core; `has_hosts`: the job has several hosts.
MessageRoute near_message(const TieredRates &rates, double sharers, bool is_eager, bool has_hosts);
MessageRoute far_message(const TieredRates &rates, double sender_sharers, double receiver_sharers);

// Creates a fabric. `places`: of `ranks` ranks; null: all are on one host. The fabric keeps no
// pointer to the places.
std::unique_ptr<Fabric> make_tiered_fabric(uint32_t ranks, const RankTopology *places,
                                           const TieredRates &rates);

} // namespace qccl
