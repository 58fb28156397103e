// A fabric of tiers (ranks, NUMA nodes, hosts and racks), the simulator's figures and how the
// planner's figures change them, and the level of each link, which is the highest rate that the
// link lets one flow have.
#include "plan/simulator/fabric.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

namespace qccl {

// ---- Fabrics

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
        return here.host == there.host ? local_route(from, to, is_eager)
                                       : remote_route(here, there);
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

    MessageRoute local_route(uint32_t from, uint32_t to, bool is_eager) const {
        const Spot &here = spots_[from], &there = spots_[to];
        MessageRoute route = local_message(rates_, sharers(here.host), is_eager, has_hosts_);
        pass(route, tx_, from);
        pass(route, memory_, here.node);
        if (here.node != there.node) pass(route, cross_, here.host);
        pass(route, rx_, to);
        return route;
    }

    MessageRoute remote_route(const Spot &here, const Spot &there) const {
        const bool leaves_rack = here.rack != there.rack;
        MessageRoute route = remote_message(rates_, sharers(here.host), sharers(there.host));
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
static LinkSpeeds speeds_at(const CostModel::LinkCosts &link, double sharers) {
    LinkSpeeds speeds = sharers > 1 ? link.shared : link.alone;
    speeds.latency_ns *= sharers;
    return speeds;
}

MessageRoute local_message(const TieredRates &rates, double sharers, bool is_eager,
                           bool has_hosts) {
    const LinkSpeeds speeds = speeds_at(is_eager ? rates.eager : rates.local, sharers);
    MessageRoute route;
    route.latency_ns = speeds.latency_ns;
    // Ranks that wait poll the network in between, and hold up the ranks on the same core.
    if (has_hosts && sharers > 1)
        route.latency_ns = std::max(route.latency_ns, speeds_at(rates.remote, sharers).latency_ns);
    route.send = route.recv = {speeds.message_ns, speeds.byte_ns};
    return route;
}

MessageRoute remote_message(const TieredRates &rates, double sender_sharers,
                            double receiver_sharers) {
    const auto work = [](const LinkSpeeds &speeds, double share) -> MessageRoute::MessageCost {
        return {2 * share * speeds.message_ns, 2 * share * speeds.byte_ns};
    };
    const LinkSpeeds sender = speeds_at(rates.remote, sender_sharers),
                     receiver = speeds_at(rates.remote, receiver_sharers);
    MessageRoute route;
    route.latency_ns = receiver.latency_ns;
    route.eager_bytes = rates.remote_eager_bytes;
    route.rendezvous_ns = rates.rendezvous_ns;
    route.send = work(sender, rates.remote_send_share);
    route.recv = work(receiver, 1 - rates.remote_send_share);
    route.is_by_reference = false;
    return route;
}

std::unique_ptr<Fabric> make_tiered_fabric(uint32_t ranks, const RankTopology *places,
                                           const TieredRates &rates) {
    return std::make_unique<TieredFabric>(ranks, places, rates);
}

// ---- Rates and costs of a machine

namespace {

// Figures of `perf/hosts/plan_table.py` on two processors of a Zen 5 server, over shared memory and
// over TCP between network namespaces.
constexpr CostModel::LinkCosts local_links{
    {.latency_ns = 530, .message_ns = 60, .byte_ns = 0.001},
    {.latency_ns = 1270, .message_ns = 410, .byte_ns = 0.001}};
constexpr CostModel::LinkCosts eager_slots{
    {.latency_ns = 0, .message_ns = 0, .byte_ns = 0.001},
    {.latency_ns = 2200, .message_ns = 160, .byte_ns = 0.001}};
constexpr CostModel::LinkCosts remote_links{
    {.latency_ns = 2650, .message_ns = 6400, .byte_ns = 0.38},
    {.latency_ns = 4300, .message_ns = 10000, .byte_ns = 0.6}};
// UCX makes larger messages wait until the receiver has asked for them. Where ranks share cores,
// the other figures include that.
constexpr uint64_t network_eager_bytes = 8 << 10;
constexpr double rendezvous_ns = 7500;
// A sender hands its bytes to the kernel, which carries them all the way into the receiver's
// buffers.
constexpr double sender_share = 0.95;
// Processors of a virtual machine are threads of cores. Two threads of a core do little more than
// one.
constexpr double busy_core = 0.6;

// The speed of each access to memory, by the bytes of the vectors of two ranks.
constexpr CopySpeeds memory_speeds{{{{1 << 20, 380}, {4 << 20, 300}, {8 << 20, 48}}}};
constexpr double cache_speed = 150;   // passing over tiles in the nearest cache
constexpr double adding_share = 0.57; // of cache_speed, where values are added up
// The memory speeds of reading and writing that the measured rates of codecs include, which come
// from vectors larger than the caches.
constexpr ComputeSpeeds::Coding measured_memory{.encode = 76, .decode = 18.8, .decode_add = 380};
// How many times as long computing takes: if ranks share a core and empty its caches, and if ranks
// that wait poll.
constexpr double crowded = 1.2, polled = 1.6;
// Time of a call, and what naming a codec adds.
constexpr double call_ns = 220, shared_call_ns = 910, codec_ns = 330;
constexpr double lossless_chunk_ns = 7.5, coded_chunk_ns = 28;
// A message's bytes cost less, the more of them caches and sockets hold.
constexpr double least_byte_share = 0.15;
constexpr double cached_vector = 256 << 10, uncached_vector = 1 << 20;

double scaled(double own, double planner, double planner_default) {
    return planner_default > 0 ? own * planner / planner_default : own;
}

// The latency that a user names is the link's, not the software's, so the difference is added.
double shifted(double own, double planner, double planner_default) {
    constexpr double least_share = 0.1;
    return std::max(least_share * own, own + planner - planner_default);
}

LinkSpeeds scaled(const LinkSpeeds &own, const LinkSpeeds &planner, const LinkSpeeds &usual) {
    return {shifted(own.latency_ns, planner.latency_ns, usual.latency_ns),
            scaled(own.message_ns, planner.message_ns, usual.message_ns),
            scaled(own.byte_ns, planner.byte_ns, usual.byte_ns)};
}

CostModel::LinkCosts scaled(const CostModel::LinkCosts &own, const CostModel::LinkCosts &planner,
                            const CostModel::LinkCosts &usual) {
    return {scaled(own.alone, planner.alone, usual.alone),
            scaled(own.shared, planner.shared, usual.shared)};
}

// The share follows the logarithm of the size, as in CopySpeeds.
double share_between(double bytes, double below, double above) {
    return std::clamp(std::log(bytes / below) / std::log(above / below), 0.0, 1.0);
}

double memory_speed(const CostModel &speeds, const Problem &problem, const SimulatedHost &host) {
    const auto vector = static_cast<double>(vector_bytes(problem));
    return memory_speeds.at(vector * std::max(2.0, host.ranks) / 2) * speeds.copy.at(vector) /
           CopySpeeds().at(vector);
}

double oversubscription_factor(const CostModel &speeds, const Problem &problem) {
    const bool shares_cores = speeds.shares_cores();
    if (problem.has_hosts())
        return polled * (shares_cores ? speeds.remote_oversubscription : 1.4) / 1.4;
    return shares_cores ? crowded : 1;
}

// Returns the rate without the time that memory takes.
double in_cache(double rate, double memory) {
    constexpr double least_share = 0.1;
    return 1 / std::max(1 / rate - 1 / memory, least_share / rate);
}

ComputeSpeeds gpu_speeds(const CostModel &speeds, const Problem &problem, const Codec &inner) {
    const double copying = speeds.copy.at(static_cast<double>(vector_bytes(problem)));
    const auto coding = [&](const Codec &codec) -> ComputeSpeeds::Coding {
        if (codec.is_lossless()) return {copying, copying, copying};
        const CodecRate rate = speeds.coding_rate(codec, problem.has_hosts(), copying);
        return {rate.encode, rate.decode, rate.decode_add};
    };
    return {.copy = copying, .outer = coding(problem.codec), .inner = coding(inner)};
}

} // namespace

TieredRates tiered_rates(const CostModel &speeds, const SimulatedHost &host) {
    TieredRates rates{.local = speeds.local,
                      .eager = speeds.eager,
                      .remote = speeds.remote,
                      .line_rate = speeds.remote_bytes_per_ns,
                      .line_burst_bytes = speeds.remote_burst_bytes};
    if (host.has_gpus) return rates;
    const CostModel usual;
    rates.local = scaled(local_links, speeds.local, usual.local);
    rates.eager = scaled(eager_slots, speeds.eager, usual.eager);
    rates.remote = scaled(remote_links, speeds.remote, usual.remote);
    rates.remote_send_share = sender_share;
    rates.remote_eager_bytes = network_eager_bytes;
    rates.rendezvous_ns =
        scaled(rendezvous_ns, speeds.remote.alone.latency_ns, usual.remote.alone.latency_ns);
    rates.busy_core = busy_core;
    return rates;
}

ComputeSpeeds compute_speeds(const CostModel &speeds, const Problem &problem, const Codec &inner,
                             const SimulatedHost &host) {
    if (host.has_gpus) return gpu_speeds(speeds, problem, inner);
    const double slower = oversubscription_factor(speeds, problem);
    const double narrow = type_bytes(problem.type) < sizeof(float) ? speeds.narrow_coding : 1;
    const auto coding = [&](const Codec &codec) -> ComputeSpeeds::Coding {
        if (codec.is_lossless())
            return {cache_speed / slower, cache_speed / slower,
                    cache_speed * adding_share / slower};
        const CodecRate rate = speeds.coding_rate(codec, problem.has_hosts(), cache_speed);
        const double factor = narrow / slower;
        return {factor * in_cache(rate.encode, measured_memory.encode),
                factor * in_cache(rate.decode, measured_memory.decode),
                factor * in_cache(rate.decode_add, measured_memory.decode_add)};
    };
    const bool is_lossless = problem.codec.is_lossless();
    const bool shares_cores = speeds.shares_cores();
    const double uncached =
        share_between(static_cast<double>(vector_bytes(problem)), cached_vector, uncached_vector);
    return {.copy = cache_speed / slower,
            .outer = coding(problem.codec),
            .inner = coding(inner),
            .memory = memory_speed(speeds, problem, host) / slower,
            .network_byte_share = least_byte_share + (1 - least_byte_share) * uncached,
            .call_ns = (shares_cores ? shared_call_ns : call_ns) + (is_lossless ? 0 : codec_ns),
            .chunk_ns = is_lossless ? lossless_chunk_ns : coded_chunk_ns};
}

// ---- Rates of flows

namespace {

// Two levels are equal if their relative difference is smaller.
constexpr double tolerance = 1e-12;

bool differ(double a, double b) {
    if (std::isinf(a) || std::isinf(b)) return a != b;
    return std::abs(a - b) > tolerance * std::max(a, b);
}

} // namespace

uint32_t FairShare::add_link(double capacity) {
    links_.push_back({.capacity = capacity, .level = unlimited, .flows = {}});
    return static_cast<uint32_t>(links_.size() - 1);
}

uint32_t FairShare::begin(std::span<const LinkShare> uses, double most_rate) {
    if (free_.empty()) {
        free_.push_back(static_cast<uint32_t>(flows_.size()));
        flows_.emplace_back();
    }
    const uint32_t number = free_.back();
    free_.pop_back();
    Flow &flow = flows_[number];
    flow.count = static_cast<uint32_t>(uses.size());
    flow.is_active = true;
    flow.most_rate = most_rate;
    flow.rate = 0;
    for (uint32_t i = 0; i < flow.count; i++) {
        SharedLink &link = links_[uses[i].link];
        flow.uses[i] = uses[i];
        flow.positions[i] = static_cast<uint32_t>(link.flows.size());
        link.flows.push_back(number);
        mark(uses[i].link);
    }
    begun_.push_back(number);
    return number;
}

void FairShare::end(uint32_t number) {
    Flow &flow = flows_[number];
    for (uint32_t i = 0; i < flow.count; i++) {
        SharedLink &link = links_[flow.uses[i].link];
        const uint32_t moved = link.flows.back();
        link.flows[flow.positions[i]] = moved;
        for (uint32_t k = 0; k < flows_[moved].count; k++)
            if (flows_[moved].uses[k].link == flow.uses[i].link)
                flows_[moved].positions[k] = flow.positions[i];
        link.flows.pop_back();
        mark(flow.uses[i].link);
    }
    flow.is_active = false;
    free_.push_back(number);
}

double FairShare::limit(const Flow &flow, uint32_t without) const {
    double least = flow.most_rate;
    for (uint32_t i = 0; i < flow.count; i++)
        if (i != without) least = std::min(least, links_[flow.uses[i].link].level);
    return least;
}

void FairShare::mark(uint32_t link) {
    if (links_[link].is_dirty) return;
    links_[link].is_dirty = true;
    dirty_.push_back(link);
}

// A link's level depends on what its flows could have elsewhere, which depends on the levels of
// other links. No level is ever below the smallest fair share of all links, so the level of the
// link with that share is right once it has been computed; then the next smallest is, and so on.
void FairShare::find_levels() {
    for (size_t i = 0; i < dirty_.size(); i++) {
        const uint32_t number = dirty_[i];
        links_[number].is_dirty = false;
        const double level = level_of(links_[number], number);
        if (differ(level, links_[number].level)) set_level(number, level);
    }
    dirty_.clear();
}

// Flows that are limited elsewhere take what they can have. The other flows share the rest.
double FairShare::level_of(const SharedLink &link, uint32_t number) {
    open_.clear();
    limits_.clear();
    double left = link.capacity, weights = 0;
    for (const uint32_t each : link.flows) {
        const Flow &flow = flows_[each];
        uint32_t at = 0;
        while (flow.uses[at].link != number) at++;
        open_.push_back({static_cast<uint32_t>(limits_.size()), flow.uses[at].weight});
        limits_.push_back(limit(flow, at));
        weights += flow.uses[at].weight;
    }
    while (!open_.empty()) {
        const double level = left / weights;
        const auto is_limited = [&](const LinkShare &use) {
            if (limits_[use.link] >= level * (1 - tolerance)) return false;
            left -= use.weight * limits_[use.link];
            weights -= use.weight;
            return true;
        };
        if (std::erase_if(open_, is_limited) == 0) return level;
    }
    return unlimited;
}

// Marks another link if the rate that a flow could have here is, or was, below what that link lets
// it have.
void FairShare::set_level(uint32_t number, double level) {
    SharedLink &link = links_[number];
    const double least = std::min(level, link.level);
    link.level = level;
    if (!link.has_moved) moved_.push_back(number);
    link.has_moved = true;
    for (const uint32_t each : link.flows) {
        const Flow &flow = flows_[each];
        for (uint32_t i = 0; i < flow.count; i++) {
            const uint32_t other = flow.uses[i].link;
            if (other != number && least < links_[other].level) mark(other);
        }
    }
}

} // namespace qccl
