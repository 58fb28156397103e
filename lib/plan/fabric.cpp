// A fabric of tiers: ranks, NUMA nodes, hosts and racks.
#include "plan/fabric.hpp"

#include <algorithm>
#include <map>
#include <tuple>

namespace qccl {

namespace {

// The links of one kind have consecutive numbers: one link for each rank, node, host or rack.
struct LinkRow {
    const char *name; // of a link, after its owner's
    const char *owner;
    double rate = 0;
    uint32_t first = 0, count = 0;

    bool exists() const { return count != 0; }
};

class TieredFabric final : public Fabric {
public:
    TieredFabric(uint32_t ranks, const RankTopology *places, const TieredRates &rates)
        : rates_(rates), spots_(ranks) {
        if (places) number_spots(*places);
        const uint32_t nodes = 1 + last(&Spot::node), hosts = 1 + last(&Spot::host),
                       racks = 1 + last(&Spot::rack);
        has_hosts_ = hosts > 1;
        ranks_of_group_.assign(rates.hosts_share_cores ? 1 : hosts, 0);
        for (const Spot &spot : spots_) ranks_of_group_[group_of(spot.host)]++;
        add_row(tx_, {"sending", "rank", rates.rank_rate}, ranks);
        add_row(rx_, {"receiving", "rank", rates.rank_rate}, ranks);
        add_row(memory_, {"memory", "node", rates.node_rate}, nodes);
        add_row(cross_, {"memory between its nodes", "host", rates.cross_rate}, hosts);
        add_row(up_, {"line up", "host", rates.line_rate}, hosts);
        add_row(down_, {"line down", "host", rates.line_rate}, hosts);
        add_row(rack_up_, {"line up", "rack", rates.rack_rate}, racks);
        add_row(rack_down_, {"line down", "rack", rates.rack_rate}, racks);
    }

    uint32_t ranks() const override { return static_cast<uint32_t>(spots_.size()); }
    uint32_t links() const override { return links_; }
    double bytes_per_ns(uint32_t link) const override { return row_of(link).rate; }
    double burst_bytes(uint32_t link) const override {
        const LinkRow &row = row_of(link);
        return &row == &up_ || &row == &down_ ? rates_.line_burst_bytes : 0;
    }
    std::string link_name(uint32_t link) const override {
        const LinkRow &row = row_of(link);
        return std::string(row.owner) + " " + std::to_string(link - row.first) + "'s " + row.name;
    }

    MessageRoute route(uint32_t from, uint32_t to, bool is_eager) const override {
        const Spot &here = spots_[from], &there = spots_[to];
        return here.host == there.host ? near_route(from, to, is_eager) : far_route(here, there);
    }

    uint32_t core_groups() const override { return static_cast<uint32_t>(ranks_of_group_.size()); }
    uint32_t core_group(uint32_t rank) const override { return group_of(spots_[rank].host); }
    double cores(uint32_t group) const override {
        // Between hosts, ranks that poll keep all cores busy; the other figures include that.
        return cores_of(group) * (has_hosts_ ? 1 : rates_.busy_core);
    }
    std::string cores_name(uint32_t group) const override {
        if (rates_.hosts_share_cores) return "cores of all hosts";
        return "host " + std::to_string(group) + "'s cores";
    }

private:
    // Numbers that are unique in the machine.
    struct Spot {
        uint32_t node = 0, host = 0, rack = 0;
    };

    void number_spots(const RankTopology &places) {
        std::map<std::tuple<uint32_t, uint32_t, uint32_t>, uint32_t> nodes;
        std::map<std::pair<uint32_t, uint32_t>, uint32_t> hosts;
        std::map<uint32_t, uint32_t> racks;
        const auto number = [](auto &known, const auto &key) {
            return known.emplace(key, static_cast<uint32_t>(known.size())).first->second;
        };
        for (uint32_t rank = 0; rank < spots_.size(); rank++) {
            const RankLocation &at = places.of(rank);
            spots_[rank] = {.node = number(nodes, std::tuple(at.rack, at.host, at.node)),
                            .host = number(hosts, std::pair(at.rack, at.host)),
                            .rack = number(racks, at.rack)};
        }
    }

    uint32_t group_of(uint32_t host) const { return rates_.hosts_share_cores ? 0 : host; }

    uint32_t last(uint32_t Spot::*number) const {
        uint32_t most = 0;
        for (const Spot &spot : spots_) most = std::max(most, spot.*number);
        return most;
    }

    void add_row(LinkRow &row, const LinkRow &kind, uint32_t count) {
        row = kind;
        row.first = links_;
        row.count = kind.rate > 0 ? count : 0;
        links_ += row.count;
    }

    const LinkRow &row_of(uint32_t link) const {
        const LinkRow *found = &tx_;
        for (const LinkRow *row : {&rx_, &memory_, &cross_, &up_, &down_, &rack_up_, &rack_down_})
            if (row->exists() && row->first <= link) found = row;
        return *found;
    }

    static void pass(MessageRoute &route, const LinkRow &row, uint32_t owner) {
        if (row.exists()) route.add(row.first + owner);
    }

    double cores_of(uint32_t group) const {
        return rates_.cores > 0 ? rates_.cores : ranks_of_group_[group];
    }
    // Returns the number of ranks on a core.
    double sharers(uint32_t host) const {
        const uint32_t group = group_of(host);
        return std::max(1.0, ranks_of_group_[group] / cores_of(group));
    }

    MessageRoute near_route(uint32_t from, uint32_t to, bool is_eager) const {
        const Spot &here = spots_[from], &there = spots_[to];
        MessageRoute route = near_message(rates_, sharers(here.host), is_eager, has_hosts_);
        pass(route, tx_, from);
        pass(route, memory_, here.node);
        if (here.node != there.node) pass(route, cross_, here.host);
        pass(route, rx_, to);
        return route;
    }

    MessageRoute far_route(const Spot &here, const Spot &there) const {
        const bool leaves_rack = here.rack != there.rack;
        MessageRoute route = far_message(rates_, sharers(here.host), sharers(there.host));
        pass(route, up_, here.host);
        if (leaves_rack) {
            route.latency_ns += rates_.rack_latency_ns;
            pass(route, rack_up_, here.rack);
            pass(route, rack_down_, there.rack);
        }
        pass(route, down_, there.host);
        return route;
    }

    const TieredRates rates_;
    std::vector<Spot> spots_;
    std::vector<uint32_t> ranks_of_group_;
    bool has_hosts_ = false;
    LinkRow tx_, rx_, memory_, cross_, up_, down_, rack_up_, rack_down_;
    uint32_t links_ = 0;
};

} // namespace

// The ranks on a core take turns, so a message waits for all of them.
static LinkSpeeds speeds_at(const CostModel::Link &link, double sharers) {
    LinkSpeeds speeds = sharers > 1 ? link.shared : link.alone;
    speeds.latency_ns *= sharers;
    return speeds;
}

MessageRoute near_message(const TieredRates &rates, double sharers, bool is_eager, bool has_hosts) {
    const LinkSpeeds speeds = speeds_at(is_eager ? rates.eager : rates.near, sharers);
    MessageRoute route;
    route.latency_ns = speeds.latency_ns;
    // Ranks that wait poll the network in between, and hold up the ranks on the same core.
    if (has_hosts && sharers > 1)
        route.latency_ns = std::max(route.latency_ns, speeds_at(rates.far, sharers).latency_ns);
    route.send = route.recv = {speeds.message_ns, speeds.byte_ns};
    return route;
}

MessageRoute far_message(const TieredRates &rates, double sender_sharers, double receiver_sharers) {
    const auto work = [](const LinkSpeeds &speeds, double share) -> MessageRoute::Work {
        return {2 * share * speeds.message_ns, 2 * share * speeds.byte_ns};
    };
    const LinkSpeeds sender = speeds_at(rates.far, sender_sharers),
                     receiver = speeds_at(rates.far, receiver_sharers);
    MessageRoute route;
    route.latency_ns = receiver.latency_ns;
    route.eager_bytes = rates.far_eager_bytes;
    route.rendezvous_ns = rates.rendezvous_ns;
    route.send = work(sender, rates.far_send_share);
    route.recv = work(receiver, 1 - rates.far_send_share);
    route.is_by_reference = false;
    return route;
}

std::unique_ptr<Fabric> make_tiered_fabric(uint32_t ranks, const RankTopology *places,
                                           const TieredRates &rates) {
    return std::make_unique<TieredFabric>(ranks, places, rates);
}

} // namespace qccl
