// Hierarchy: ranks that are near each other sum first, a leader of each host sums these partial
// sums between the hosts, and the results come back the same way. The schedules consist of phases
// of other algorithms at each level of the tier tree, for as many tiers as the team's topology has.
// An all-to-all has one level, between hosts.

#include "coll/emitters.hpp"
#include "coll/groups.hpp"

#include <algorithm>
#include <deque>
#include <map>
#include <optional>

namespace qccl {

namespace {

constexpr const GroupPhases *inner_phases[] = {&direct_phases, &ring_phases, &halving_phases,
                                               &tree_phases};
constexpr const GroupPhases *outer_phases[] = {&ring_phases, &halving_phases, &star_phases,
                                               &tree_phases};
static_assert(std::size(inner_phases) == std::size(inner_words));
static_assert(std::size(outer_phases) == std::size(outer_words));

// Above the nearest groups the members' parts are sums, which the reduce-scatter phases of some
// algorithms do not accept.
const GroupPhases &phases_of(const TierTree &tree, const Choices &choices, uint32_t level) {
    return level == 0 && !tree.is_top(0) ? *inner_phases[choices[0]] : *outer_phases[choices[1]];
}

bool has_leaders(const Choices &choices) { return choices[2] == 1; }

// Returns a route for each chunk of a whole vector: one owner in every part of the topmost group
// for each combination of shares below.
std::vector<ChunkRoute> routes_of_sums(const TierTree &tree, bool has_leaders) {
    const uint32_t top = tree.levels() - 1;
    std::vector<ChunkRoute> routes;
    for (auto choice : tree.shares(has_leaders)) {
        choice.push_back(0);
        for (const auto parts = tree.parts(top, 0).size(); choice[top] < parts; choice[top]++)
            routes.push_back({.owner = tree.pick(top, 0, choice)});
    }
    return routes;
}

// If there is only one route, the root forwards the chunk itself.
std::vector<ChunkRoute> routes_of_root(const Team &t, const TierTree &tree, bool has_leaders) {
    std::vector<ChunkRoute> routes;
    for (auto &choice : tree.shares(has_leaders))
        routes.push_back({.owner = t.root, .shares = std::move(choice)});
    if (routes.size() == 1) routes[0] = {.owner = t.root};
    return routes;
}

// In an all-gather a chunk leaves its owner's groups through their leaders, if there are any; in a
// reduce-scatter the owner itself makes the sum. A reduce goes a broadcast's way back.
std::vector<ChunkRoute> routes_of(Collective collective, const Team &t, const TierTree &tree,
                                  const Choices &choices) {
    if (collective == Collective::all_reduce) return routes_of_sums(tree, has_leaders(choices));
    if (row_of(collective).has_root) return routes_of_root(t, tree, has_leaders(choices));
    const bool is_helped = collective == Collective::all_gather && has_leaders(choices);
    std::vector<ChunkRoute> routes;
    for (uint32_t owner = 0; owner < t.size; owner++)
        routes.push_back(
            {.owner = owner, .shares = std::vector(is_helped ? tree.levels() - 1 : 0, 0U)});
    return routes;
}

// Whether ranks other than the owners forward chunks out of the owners' groups; the same for all
// routes of a team.
bool are_helped(const std::vector<ChunkRoute> &routes) { return !routes[0].shares.empty(); }

// Returns the rank that makes a chunk's complete sum.
uint32_t end_of(const TierTree &tree, const ChunkRoute &route) {
    return tree.leader(tree.levels() - 1, 0, route);
}

// Writes the schedule of one rank.
class Writer {
public:
    Writer(Collective collective, const Team &t, const Choices &choices)
        : collective_(collective), t_(t), choices_(choices), tree_(t),
          routes_(routes_of(collective, t, tree_, choices)) {
        s_.chunks = static_cast<uint32_t>(routes_.size());
    }

    // Sums from the nearest groups up to the top, and sends the sums to the root if only the root
    // has a result. Values that are sent below the top are partial sums, which are marked as
    // `inner`.
    void reduce_scatter() {
        Parts parts = inputs(s_);
        for (uint32_t level = 0; level < tree_.levels(); level++) {
            const size_t first = s_.steps.size();
            const uint32_t own = tree_.group_of(level, t_.rank);
            for (const Group &group : groups(level, [&](const ChunkRoute &route) {
                     return tree_.leader(level, own, route);
                 }))
                phases(level).reduce_scatter(s_, group, parts);
            for (size_t i = first; i < s_.steps.size() && !tree_.is_top(level); i++)
                if (!computes(s_.steps[i].verb)) s_.steps[i].flags |= Step::inner;
        }
        if (!row_of(collective_).has_one_result)
            return each_own([&](uint32_t c) { s_.finish(output(c), parts[c]); });
        Group ends(ranks_in_turn(t_.size), t_.rank);
        for (uint32_t c = 0; c < s_.chunks; c++)
            ends.chunks[end_of(tree_, routes_[c])].push_back(c);
        gather_sums(s_, ends, t_.root, parts);
    }

    void copy_own() {
        each_own([&](uint32_t c) { s_.copy(output(c), input(c)); });
    }

    // Distributes from the top down to the nearest groups. A chunk that other ranks than its owner
    // forward is first sent to these ranks.
    void all_gather() {
        if (!are_helped(routes_)) {
            for (uint32_t level = tree_.levels(); level-- > 0;) all_gather(level, true, true);
            return;
        }
        for (uint32_t level = 0; level < tree_.levels(); level++) all_gather(level, true, false);
        for (uint32_t level = tree_.levels() - 1; level-- > 0;) all_gather(level, false, true);
    }

    Schedule take(uint32_t outbox) && {
        s_.outbox = t_.size == 1 ? 0 : outbox;
        return std::move(s_);
    }
    uint32_t chunks() const { return s_.chunks; }

private:
    static constexpr uint32_t nobody = ~uint32_t{0};

    const GroupPhases &phases(uint32_t level) const { return phases_of(tree_, choices_, level); }
    template <class Visitor> void each_own(Visitor visit) {
        for (uint32_t c = 0; c < s_.chunks; c++)
            if (routes_[c].owner == t_.rank) visit(c);
    }

    // Returns the groups that this rank is in at the level, each with the chunks that it handles
    // there. end_of(route) returns the member that owns the chunk in this rank's group, or
    // `nobody`. The groups come in the order of their first chunks, which is the same on all ranks,
    // so that two ranks never wait for each other in different groups.
    template <class EndOf> std::vector<Group> groups(uint32_t level, EndOf end_of) const {
        std::vector<Group> found;
        std::map<std::vector<uint32_t>, size_t> numbers; // by the key that determines the members
        for (uint32_t c = 0; c < s_.chunks; c++) {
            const ChunkRoute &route = routes_[c];
            const bool is_in =
                level == 0 ||
                tree_.leader(level - 1, tree_.group_of(level - 1, t_.rank), route) == t_.rank;
            const uint32_t end = is_in ? end_of(route) : nobody;
            if (end == nobody) continue;
            const auto [known, is_new] = numbers.try_emplace(tree_.places(level, route));
            if (is_new) known->second = number_of_group(found, level, route);
            Group &group = found[known->second];
            group.chunks[group.position(end)].push_back(c);
        }
        return found;
    }

    // Returns the index of this rank's group with the members on the route, and adds the group if
    // it is new.
    size_t number_of_group(std::vector<Group> &found, uint32_t level,
                           const ChunkRoute &route) const {
        const auto members = tree_.members(level, tree_.group_of(level, t_.rank), route);
        const auto at = std::find_if(found.begin(), found.end(),
                                     [&](const Group &g) { return g.ranks == members; });
        const auto number = static_cast<size_t>(at - found.begin());
        if (at == found.end()) found.emplace_back(members, t_.rank);
        return number;
    }

    // Distributes chunks whose owners are in this rank's group (takes_home) or elsewhere
    // (takes_others).
    void all_gather(uint32_t level, bool takes_home, bool takes_others) {
        const uint32_t own = tree_.group_of(level, t_.rank);
        const auto start_of = [&](const ChunkRoute &route) {
            if (tree_.is_home(level, own, route))
                return takes_home ? tree_.home(level, route) : nobody;
            return takes_others ? tree_.leader(level, own, route) : nobody;
        };
        for (const Group &group : groups(level, start_of)) phases(level).all_gather(s_, group);
    }

    const Collective collective_;
    const Team &t_;
    const Choices &choices_;
    const TierTree tree_;
    const std::vector<ChunkRoute> routes_;
    Schedule s_;
};

using Term = SumOrder::Term;

Term term_of(const TierTree &tree, const Choices &choices, uint32_t level, uint32_t group,
             const ChunkRoute &route) {
    std::vector<Term> members;
    for (const uint32_t part : tree.parts(level, group))
        members.push_back(level == 0 ? Term{.rank = part}
                                     : term_of(tree, choices, level - 1, part, route));
    const auto size = static_cast<uint32_t>(members.size());
    return phases_of(tree, choices, level)
        .fold(std::move(members), tree.leader_place(level, route) % size);
}

// Returns the noise of the partial sums that are encoded at the level.
NoiseMoments encoded_at(const Team &t, const TierTree &tree, const Choices &choices,
                        const std::vector<ChunkRoute> &routes, uint32_t level) {
    std::map<uint32_t, double> routes_by_place;
    for (const ChunkRoute &route : routes) routes_by_place[tree.leader_place(level, route)]++;
    NoiseMoments total; // of contributions
    for (uint32_t group = 0; group < tree.groups(level); group++) {
        const auto weights = tree.weights(level, group);
        for (const auto &[place, times] : routes_by_place)
            total += phases_of(tree, choices, level)
                         .encoded(weights, place % static_cast<uint32_t>(weights.size())) *
                     times;
    }
    return total.shares_of(t.size) * (1 / static_cast<double>(routes.size()));
}

// Writes the all-to-all of one rank. For every other host a rank of its own host handles what the
// two hosts exchange: it collects the parts of its host's ranks, sends them to the rank of the
// other host that does the same there, and hands out what comes back. So one message for each pair
// of hosts is enough if the parts are small.
class HostExchange {
public:
    explicit HostExchange(const Team &t) : t_(t), members_(t.places->hosts().groups()) {
        for (uint32_t rank = 0; rank < t.size; rank++)
            members_[t.places->hosts().group_of(rank)].push_back(rank);
        own_ = t.places->hosts().group_of(t.rank);
        s_.chunks = t.size;
        s_.outbox = t.size - 1;
    }

    // In place, the part that comes from a rank takes the place of the part for it, which is sent
    // before: by this rank in the phase before, or to the same host.
    Schedule run() && {
        const uint32_t own = t_.chunk_with(t_.rank);
        s_.copy(output(own), input(own));
        each_other([&](uint32_t member) { collect_to(member); });
        each_other([&](uint32_t member) { collect_from(member); });
        each_handled(t_.rank, [&](uint32_t host) { send_to(host); });
        each_handled(t_.rank, [&](uint32_t host) { receive_from(host); });
        each_other([&](uint32_t member) { hand_out_to(member); });
        each_other([&](uint32_t member) { take_from(member); });
        return std::move(s_);
    }

private:
    uint32_t handler(uint32_t host, uint32_t other) const {
        return members_[host][other % members_[host].size()];
    }
    // Visits the other ranks of this host, each rank beginning behind itself.
    template <class Visitor> void each_other(Visitor visit) const {
        const auto &all = members_[own_];
        const auto at = static_cast<size_t>(std::ranges::find(all, t_.rank) - all.begin());
        for (size_t i = 1; i < all.size(); i++) visit(all[(at + i) % all.size()]);
    }
    // Visits the hosts whose parts the member of this host handles.
    template <class Visitor> void each_handled(uint32_t member, Visitor visit) const {
        for (uint32_t host = 0; host < members_.size(); host++)
            if (host != own_ && handler(own_, host) == member) visit(host);
    }
    Slot hold(uint32_t giver, uint32_t taker) { return held_[{giver, taker}] = wire(s_.wires); }

    void collect_to(uint32_t member) {
        s_.send(member, input(t_.chunk_with(member)));
        each_handled(member, [&](uint32_t host) {
            for (const uint32_t taker : members_[host])
                s_.send(member, input(t_.chunk_with(taker)));
        });
    }
    void collect_from(uint32_t member) {
        receive_part(s_, t_, member, member);
        each_handled(t_.rank, [&](uint32_t host) {
            for (const uint32_t taker : members_[host])
                s_.recv(member, hold(member, taker), chunk_between(t_, member, taker));
        });
    }
    void send_to(uint32_t host) {
        for (const uint32_t giver : members_[own_])
            for (const uint32_t taker : members_[host]) {
                const uint32_t chunk = chunk_between(t_, giver, taker);
                s_.send(handler(host, own_),
                        giver == t_.rank ? input(chunk) : held_.at({giver, taker}), chunk);
            }
    }
    void receive_from(uint32_t host) {
        for (const uint32_t giver : members_[host])
            for (const uint32_t taker : members_[own_]) {
                if (taker == t_.rank)
                    receive_part(s_, t_, handler(host, own_), giver);
                else
                    s_.recv(handler(host, own_), hold(giver, taker),
                            chunk_between(t_, giver, taker));
            }
    }
    void hand_out_to(uint32_t member) {
        each_handled(t_.rank, [&](uint32_t host) {
            for (const uint32_t giver : members_[host])
                s_.send(member, held_.at({giver, member}), chunk_between(t_, giver, member));
        });
    }
    void take_from(uint32_t member) {
        each_handled(member, [&](uint32_t host) {
            for (const uint32_t giver : members_[host]) receive_part(s_, t_, member, giver);
        });
    }

    const Team &t_;
    std::vector<std::vector<uint32_t>> members_; // by host
    uint32_t own_ = 0;
    std::map<std::pair<uint32_t, uint32_t>, Slot> held_; // by giver and taker
    Schedule s_;
};

bool has_hosts(const Team &t) { return t.places && t.places->hosts().groups() > 1; }

} // namespace

Schedule emit_hierarchy(Collective collective, const Team &t, const Choices &choices) {
    const CollectiveRow &row = row_of(collective);
    if (row.exchanges) return has_hosts(t) ? HostExchange(t).run() : all_to_all_direct(t);
    Writer writer(collective, t, choices);
    if (row.reduces)
        writer.reduce_scatter();
    else
        writer.copy_own();
    if (!row.scatters && !row.has_one_result) writer.all_gather();
    // A rank sends its part of each chunk at most once, or encodes the chunk's result, so no send
    // waits for a free wire slot.
    return std::move(writer).take(row.scatters ? t.size - 1 : row.gathers ? 1 : writer.chunks());
}

SumOrder by_hierarchy(Collective collective, const Team &t, const Choices &choices,
                      uint32_t chunk) {
    const TierTree tree(t);
    const auto routes = routes_of(collective, t, tree, choices);
    const ChunkRoute &route = routes[chunk % routes.size()];
    return SumOrder::of(term_of(tree, choices, tree.levels() - 1, 0, route), t.size);
}

namespace {

// Returns the length of the longest chain of messages that wait for one another.
uint32_t count_rounds(Collective collective, const Team &t, const Choices &choices) {
    struct CountedRank {
        std::vector<Step> steps;
        size_t next = 0;
        uint32_t rounds = 0;
    };
    std::vector<CountedRank> runs(t.size);
    Team one = t;
    for (one.rank = 0; one.rank < t.size; one.rank++)
        runs[one.rank].steps = emit_hierarchy(collective, one, choices).steps;
    std::map<std::pair<uint32_t, uint32_t>, std::deque<uint32_t>> sent; // from, to: rounds
    for (bool has_moved = true; has_moved;) {
        has_moved = false;
        for (uint32_t rank = 0; rank < t.size; rank++)
            for (CountedRank &run = runs[rank]; run.next < run.steps.size(); run.next++) {
                const Step &step = run.steps[run.next];
                if (step.verb == Verb::send) sent[{rank, step.peer}].push_back(run.rounds);
                if (step.verb == Verb::recv) {
                    auto &queue = sent[{step.peer, rank}];
                    if (queue.empty()) break;
                    run.rounds = std::max(run.rounds, queue.front() + 1);
                    queue.pop_front();
                }
                has_moved = true;
            }
    }
    return std::max_element(
               runs.begin(), runs.end(),
               [](const CountedRank &a, const CountedRank &b) { return a.rounds < b.rounds; })
        ->rounds;
}

} // namespace

// Returns the rounds of the levels for which `counts(tree, level)` holds; the levels run one after
// the other.
template <class Counts>
static uint32_t rounds_at_levels(Collective collective, const Team &t, const Choices &choices,
                                 Counts counts) {
    const TierTree tree(t);
    const bool is_helped = are_helped(routes_of(collective, t, tree, choices));
    uint32_t rounds = 0;
    for (uint32_t level = 0; level < tree.levels(); level++) {
        if (!counts(tree, level)) continue;
        const bool is_twice = collective == Collective::all_reduce ||
                              (is_helped && !reduces(collective) && !tree.is_top(level));
        rounds += (is_twice ? 2 : 1) * phases_of(tree, choices, level).rounds(tree.largest(level));
    }
    return rounds;
}

// The data goes up and down through one tier after the other. Leaders that handle several groups at
// a level need more rounds, and uneven halves fewer; both are counted exactly for teams that are
// small enough.
uint32_t rounds_hierarchy(Collective collective, const Team &t, const Choices &choices) {
    constexpr uint32_t most_counted = 128;
    if (t.size <= most_counted) return count_rounds(collective, t, choices);
    if (row_of(collective).exchanges) return has_hosts(t) ? 3 : 1;
    const uint32_t rounds =
        rounds_at_levels(collective, t, choices, [](const TierTree &, uint32_t) { return true; });
    if (collective != Collective::reduce) return rounds;
    const TierTree tree(t);
    return rounds + (are_helped(routes_of(collective, t, tree, choices)) ? 1 : 0);
}

uint32_t outer_rounds_hierarchy(Collective collective, const Team &t, const Choices &choices) {
    if (!t.places) return 0;
    const Partition &hosts = t.places->hosts();
    if (row_of(collective).exchanges) return has_hosts(t) ? 1 : 0;
    return rounds_at_levels(collective, t, choices, [&](const TierTree &tree, uint32_t level) {
        std::vector<std::optional<uint32_t>> host_of(tree.groups(level));
        for (uint32_t rank = 0; rank < t.size; rank++) {
            auto &host = host_of[tree.group_of(level, rank)];
            if (host.value_or(hosts.group_of(rank)) != hosts.group_of(rank)) return true;
            host = hosts.group_of(rank);
        }
        return false;
    });
}

NoiseMoments noise_hierarchy(Collective collective, const Team &t, const Choices &choices) {
    if (t.size == 1) return {};
    if (row_of(collective).exchanges) return noise_of_parts(collective, t.size);
    if (!reduces(collective)) return NoiseMoments::of(1);
    const TierTree tree(t);
    const auto routes = routes_of(collective, t, tree, choices);
    const NoiseMoments parts = encoded_at(t, tree, choices, routes, tree.levels() - 1);
    if (collective == Collective::all_reduce) return parts + NoiseMoments::of(1);
    if (collective == Collective::reduce_scatter) return parts;
    const auto sent = std::ranges::count_if(
        routes, [&](const ChunkRoute &route) { return end_of(tree, route) != t.root; });
    return parts +
           NoiseMoments::of(1) * (static_cast<double>(sent) / static_cast<double>(routes.size()));
}

NoiseMoments inner_noise_hierarchy(Collective collective, const Team &t, const Choices &choices) {
    if (!reduces(collective)) return {};
    const TierTree tree(t);
    const auto routes = routes_of(collective, t, tree, choices);
    NoiseMoments parts;
    for (uint32_t level = 0; !tree.is_top(level); level++)
        parts += encoded_at(t, tree, choices, routes, level);
    return parts;
}

} // namespace qccl
