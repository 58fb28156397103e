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

    // Of a core, for a message that is sent or received, and for each of its bytes.
    struct Work {
        double message_ns = 0, byte_ns = 0;
    };

    std::array<uint32_t, most_links> numbers{};
    uint32_t count = 0;
    double latency_ns = 0; // from the last byte's departure until the receiver can go on
    // A larger message waits at its sender until the receiver has asked for it.
    uint64_t eager_bytes = UINT64_MAX;
    double rendezvous_ns = 0;
    Work send, recv;
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
    // That the link lets pass at once after a pause.
    virtual double burst_bytes(uint32_t link) const = 0;
    // "host 3's line up"; for people.
    virtual std::string link_name(uint32_t link) const = 0;
    // `from` and `to` are two ranks. Values of calls that are eager go through eager slots where
    // ranks share memory.
    virtual MessageRoute route(uint32_t from, uint32_t to, bool is_eager) const = 0;

    // Ranks of one group compute on the same cores, of which each has a fair share; at most one
    // core for a rank. Groups are numbered from 0 on.
    virtual uint32_t core_groups() const = 0;
    virtual uint32_t core_group(uint32_t rank) const = 0;
    virtual double cores(uint32_t group) const = 0;
    virtual std::string cores_name(uint32_t group) const = 0;
};

// A machine of hosts, with NUMA nodes inside and racks around them. Rates are bytes a nanosecond
// (GB/s); a rate of 0 says that such a link is no bottleneck, and none is made.
struct TieredRates {
    // Messages, of ranks that have a core each and of ranks that share cores, of which a message
    // waits for as many turns as there are ranks on a core.
    Speeds::Link near = Speeds().near, eager = Speeds().eager; // within a host
    Speeds::Link far = Speeds().far;                           // between hosts
    // Of what both ends of a message between hosts take, the sender's part.
    double far_send_share = 0.5;
    // A larger one waits at its sender until the receiver has asked for it, which takes so long.
    uint64_t far_eager_bytes = UINT64_MAX;
    double rendezvous_ns = 0;
    double rank_rate = 0;     // that one rank sends or receives with within its host
    double node_rate = 0;     // of a NUMA node's memory, all its ranks together
    double cross_rate = 0;    // between a host's NUMA nodes, each direction
    double line_rate = 0.125; // of a host's line, each direction
    double line_burst_bytes = 0;
    double rack_rate = 0;       // of a rack's line to the others, each direction
    double rack_latency_ns = 0; // that it adds
    // A host's cores; 0: each rank has its own.
    double cores = 0;
    // What cores do when all compute, of what each does by itself: less than 1 where they are
    // threads of the same cores.
    double busy_core = 1;
    bool hosts_share_cores = false; // those cores are all that there are: hosts are namespaces
};

// What a message takes beside its links, within a host and between hosts. `sharers`: ranks on a
// core; `has_hosts`: the job has several.
MessageRoute near_message(const TieredRates &rates, double sharers, bool is_eager, bool has_hosts);
MessageRoute far_message(const TieredRates &rates, double sender_sharers, double receiver_sharers);

// `places`: of `ranks` ranks; null: all are on one host. Kept by the fabric no longer than the
// call.
std::unique_ptr<Fabric> make_tiered_fabric(uint32_t ranks, const Places *places,
                                           const TieredRates &rates);

} // namespace qccl
