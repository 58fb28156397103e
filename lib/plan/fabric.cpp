#include "plan/fabric.hpp"

#include <map>
#include <tuple>

namespace qccl {

namespace {

// Links lie in rows: one row for each kind of link, which has a link for each rank, node, host or
// rack.
struct LinkRow {
    const char *name; // of a link, behind its owner's
    const char *owner;
    double rate = 0;
    uint32_t first = 0, count = 0;

    bool exists() const { return count != 0; }
};

class TieredFabric final : public Fabric {
public:
    TieredFabric(uint32_t ranks, const Places *places, const TieredRates &rates)
        : rates_(rates), spots_(ranks) {
        if (places) number_spots(*places);
        const uint32_t nodes = 1 + last(&Spot::node), hosts = 1 + last(&Spot::host),
                       racks = 1 + last(&Spot::rack);
        ranks_of_host_.assign(hosts, 0);
        for (const Spot &spot : spots_) ranks_of_host_[spot.host]++;
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
    std::string link_name(uint32_t link) const override {
        const LinkRow &row = row_of(link);
        return std::string(row.owner) + " " + std::to_string(link - row.first) + "'s " + row.name;
    }

    MessageRoute route(uint32_t from, uint32_t to) const override {
        const Spot &here = spots_[from], &there = spots_[to];
        return here.host == there.host ? near_route(from, to) : far_route(here, there);
    }

    uint32_t core_groups() const override { return static_cast<uint32_t>(ranks_of_host_.size()); }
    uint32_t core_group(uint32_t rank) const override { return spots_[rank].host; }
    double cores(uint32_t host) const override {
        return rates_.cores > 0 ? rates_.cores : ranks_of_host_[host];
    }

private:
    // Numbers that are unique in the machine.
    struct Spot {
        uint32_t node = 0, host = 0, rack = 0;
    };

    void number_spots(const Places &places) {
        std::map<std::tuple<uint32_t, uint32_t, uint32_t>, uint32_t> nodes;
        std::map<std::pair<uint32_t, uint32_t>, uint32_t> hosts;
        std::map<uint32_t, uint32_t> racks;
        const auto number = [](auto &known, const auto &key) {
            return known.emplace(key, static_cast<uint32_t>(known.size())).first->second;
        };
        for (uint32_t rank = 0; rank < spots_.size(); rank++) {
            const Whereabouts &at = places.of(rank);
            spots_[rank] = {.node = number(nodes, std::tuple(at.rack, at.host, at.node)),
                            .host = number(hosts, std::pair(at.rack, at.host)),
                            .rack = number(racks, at.rack)};
        }
    }

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

    bool has_turns(uint32_t host) const { return cores(host) < ranks_of_host_[host]; }

    MessageRoute near_route(uint32_t from, uint32_t to) const {
        const Spot &here = spots_[from], &there = spots_[to];
        MessageRoute route{.latency_ns = has_turns(here.host) ? rates_.turn_ns : rates_.latency_ns,
                           .send_ns = rates_.message_ns,
                           .recv_ns = rates_.message_ns};
        pass(route, tx_, from);
        pass(route, memory_, here.node);
        if (here.node != there.node) pass(route, cross_, here.host);
        pass(route, rx_, to);
        return route;
    }

    MessageRoute far_route(const Spot &here, const Spot &there) const {
        const bool leaves_rack = here.rack != there.rack;
        MessageRoute route{.latency_ns = rates_.far_latency_ns +
                                         (leaves_rack ? rates_.rack_latency_ns : 0) +
                                         (has_turns(there.host) ? rates_.turn_ns : 0),
                           .send_ns = rates_.far_message_ns,
                           .recv_ns = rates_.far_message_ns,
                           .is_by_reference = false};
        pass(route, up_, here.host);
        if (leaves_rack) {
            pass(route, rack_up_, here.rack);
            pass(route, rack_down_, there.rack);
        }
        pass(route, down_, there.host);
        return route;
    }

    const TieredRates rates_;
    std::vector<Spot> spots_;
    std::vector<uint32_t> ranks_of_host_;
    LinkRow tx_, rx_, memory_, cross_, up_, down_, rack_up_, rack_down_;
    uint32_t links_ = 0;
};

} // namespace

TieredRates tiered_rates(const Speeds &speeds) {
    return {.latency_ns = speeds.near.alone.latency_ns,
            .message_ns = speeds.near.alone.message_ns,
            .far_latency_ns = speeds.far.alone.latency_ns,
            .far_message_ns = speeds.far.alone.message_ns,
            .line_rate = speeds.far_bytes_per_ns,
            .turn_ns = speeds.near.shared.latency_ns};
}

std::unique_ptr<Fabric> make_tiered_fabric(uint32_t ranks, const Places *places,
                                           const TieredRates &rates) {
    return std::make_unique<TieredFabric>(ranks, places, rates);
}

} // namespace qccl
