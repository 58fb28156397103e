// The machine as the simulator sees it, in plain numbers: links that carry bytes and are shared
// fairly, the route of a message between two ranks, and the cores that ranks compute on. A Fabric
// holds O(1) memory for each rank, so that thousands of ranks are possible.
//
// The simulator has its own figures of machines. The cost model adds up what the busiest rank does.
// The simulator lets every rank do it, so it needs the time of each single thing. A machine's known
// figures come as the planner's CostModel: a figure that is twice the planner's default is twice
// the simulator's default here, and a latency is longer by as much.
//
// FairShare computes the rates of flows that share links fairly (max-min): no flow can have more
// without taking from a flow that has no more than it. When flows begin or end, only the links that
// this affects are computed again. TokenBuckets is for links that let bytes pass at once after a
// pause: each link has a bucket of tokens, one for each byte, which fills at the link's rate while
// the link is idle.
//
// Used by the simulator, the topology graph and the tools; FairShare and TokenBuckets by the
// simulator alone. Pure: a Fabric for any thread, the other objects for one thread each, nothing
// blocks.
#pragma once

#include "plan/cost.hpp"
#include "plan/rank_program.hpp"
#include "schedule/rank_topology.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace qccl {

// ---- Fabrics

// The route of a message from one rank to another.
struct MessageRoute {
    static constexpr uint32_t most_links = 8;

    // Time of a core for a message that is sent or received, and for each of its bytes.
    struct MessageCost {
        double message_ns = 0, byte_ns = 0;
    };

    std::array<uint32_t, most_links> numbers{};
    uint32_t count = 0;
    double latency_ns = 0; // from the last byte's departure until the receiver can go on
    // A larger message waits at its sender until the receiver has asked for it (rendezvous).
    uint64_t eager_bytes = UINT64_MAX;
    double rendezvous_ns = 0;
    MessageCost send, recv;
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
    CostModel::LinkCosts local = CostModel().local, eager = CostModel().eager; // within a host
    CostModel::LinkCosts remote = CostModel().remote;                          // between hosts
    // The sender's part of what both ends of a message between hosts spend.
    double remote_send_share = 0.5;
    // A larger message waits at its sender until the receiver has asked for it, which takes
    // rendezvous_ns.
    uint64_t remote_eager_bytes = UINT64_MAX;
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
MessageRoute local_message(const TieredRates &rates, double sharers, bool is_eager, bool has_hosts);
MessageRoute remote_message(const TieredRates &rates, double sender_sharers,
                            double receiver_sharers);

// Creates a fabric. `places`: of `ranks` ranks; null: all are on one host. The fabric keeps no
// pointer to the places.
std::unique_ptr<Fabric> make_tiered_fabric(uint32_t ranks, const RankTopology *places,
                                           const TieredRates &rates);

// ---- Rates and costs of a machine

// The ranks that share a host's caches and memory.
struct SimulatedHost {
    double ranks = 1;
    bool has_gpus = false; // nothing has been measured on them, so the planner's figures are taken
};

// Returns the costs of messages. The caller adds the figures of cores.
TieredRates tiered_rates(const CostModel &speeds, const SimulatedHost &host);
// Returns the speeds of computing in a call.
ComputeSpeeds compute_speeds(const CostModel &speeds, const Problem &problem, const Codec &inner,
                             const SimulatedHost &host);

// ---- Rates of flows

class FairShare {
public:
    static constexpr double unlimited = std::numeric_limits<double>::infinity();
    static constexpr uint32_t most_uses = 8;

    // A flow counts on the link as `weight` flows of its rate.
    struct LinkShare {
        uint32_t link = 0;
        double weight = 1;
    };

    uint32_t add_link(double capacity);

    // Begins a flow and returns its number. The flow has no rate before settle(). Numbers of flows
    // that have ended are reused. `uses` has at most `most_uses` links, each once; if it is empty,
    // most_rate has to be finite.
    uint32_t begin(std::span<const LinkShare> uses, double most_rate = unlimited);
    void end(uint32_t flow);
    double rate(uint32_t flow) const { return flows_[flow].rate; }

    // Computes the rates, and calls changed(flow) for each flow whose rate differs from that of the
    // last call. The order of these calls depends only on the calls made.
    template <class Changed> void settle(Changed changed) {
        find_levels();
        for (const uint32_t flow : begun_)
            if (flows_[flow].is_active) refresh(flow, changed);
        begun_.clear();
        for (const uint32_t link : moved_) {
            links_[link].has_moved = false;
            for (const uint32_t flow : links_[link].flows) refresh(flow, changed);
        }
        moved_.clear();
    }

private:
    struct Flow {
        std::array<LinkShare, most_uses> uses{};
        std::array<uint32_t, most_uses> positions{}; // in the links' lists of flows
        uint32_t count = 0;
        bool is_active = false;
        double most_rate = unlimited;
        double rate = 0;
    };
    struct SharedLink {
        double capacity = 0;
        double level = unlimited; // the highest rate that the link lets one flow have
        std::vector<uint32_t> flows;
        bool is_dirty = false, has_moved = false;
    };

    template <class Changed> void refresh(uint32_t number, Changed &changed) {
        Flow &flow = flows_[number];
        const double rate = limit(flow, flow.count);
        if (rate == flow.rate) return;
        flow.rate = rate;
        changed(number);
    }

    // Returns the rate that the flow could have if the link at position `without` did not limit it.
    // `without` equal to `count` leaves no link out.
    double limit(const Flow &flow, uint32_t without) const;
    void mark(uint32_t link);
    void find_levels();
    double level_of(const SharedLink &link, uint32_t number);
    void set_level(uint32_t number, double level);

    std::vector<Flow> flows_;
    std::vector<SharedLink> links_;
    std::vector<uint32_t> free_;
    std::vector<uint32_t> dirty_, begun_, moved_;
    std::vector<LinkShare> open_; // scratch; `link` is an index of limits_
    std::vector<double> limits_;
};

// ---- Bursts

class TokenBuckets {
public:
    // `share`: the part of the bucket that is full. `burst_bytes` 0: nothing passes at once.
    void add_link(double rate, double burst_bytes, double share) {
        buckets_.push_back({rate, burst_bytes, share * burst_bytes});
    }

    // Returns the part of its bucket that the link with the least tokens has left.
    double least_share(double now) {
        double least = 1;
        for (uint32_t link = 0; link < buckets_.size(); link++)
            if (buckets_[link].most > 0)
                least = std::min(least, filled(link, now).tokens / buckets_[link].most);
        return least;
    }

    // Takes tokens for a message, which counts on each of the links with its weight. Returns the
    // bytes that are left when the tokens of one of the links are gone.
    double take(std::span<const FairShare::LinkShare> uses, double bytes, double now) {
        double passing = bytes;
        for (const FairShare::LinkShare &use : uses)
            passing = std::min(passing, filled(use.link, now).tokens / use.weight);
        for (const FairShare::LinkShare &use : uses)
            buckets_[use.link].tokens -= std::min(buckets_[use.link].tokens, passing * use.weight);
        return bytes - passing;
    }

    // The bytes that take() has left over begin to cross the links, or have crossed them.
    void begin(std::span<const FairShare::LinkShare> uses, double now) {
        for (const FairShare::LinkShare &use : uses) filled(use.link, now).streams++;
    }
    void end(std::span<const FairShare::LinkShare> uses, double now) {
        for (const FairShare::LinkShare &use : uses) filled(use.link, now).streams--;
    }

private:
    struct Bucket {
        double rate = 0, most = 0;
        double tokens = 0;
        double since = 0; // time of `tokens`
        uint32_t streams = 0;
    };

    Bucket &filled(uint32_t link, double now) {
        Bucket &bucket = buckets_[link];
        if (bucket.streams == 0)
            bucket.tokens =
                std::min(bucket.most, bucket.tokens + (now - bucket.since) * bucket.rate);
        bucket.since = now;
        return bucket;
    }

    std::vector<Bucket> buckets_;
};

} // namespace qccl
