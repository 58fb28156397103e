// Counts the steps of some or all ranks, and finds the busiest rank, host and link. The load of the
// links between racks comes from the sends of ranks in every rack.
#include "plan/step_counts.hpp"

#include "schedule/lower.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <span>

namespace qccl {

// ---- Shared links

namespace {

// Returns a network for each rack, and network 0 around them; nothing if there is one rack.
std::optional<RackLines> lines_of_racks(const RankTopology &places) {
    RackLines lines{.parent = {0}, .byte_ns = {0}, .rack_of = {}};
    std::map<uint32_t, uint32_t> numbers; // by rack
    for (uint32_t rank = 0; rank < places.ranks(); rank++) {
        const auto next = static_cast<uint32_t>(numbers.size() + 1);
        lines.rack_of.push_back(numbers.try_emplace(places.of(rank).rack, next).first->second);
    }
    lines.parent.resize(numbers.size() + 1);
    lines.byte_ns.resize(lines.parent.size());
    return numbers.size() > 1 ? std::optional(std::move(lines)) : std::nullopt;
}

} // namespace

std::optional<double> RackLines::slowest_bytes_per_ns() const {
    double most = 0; // ns a byte
    for (size_t i = 1; i < rack_of.size(); i++)
        each_line(rack_of[i - 1], rack_of[i], [&](uint32_t network, bool /*is_up*/) {
            most = std::max(most, byte_ns[network]);
        });
    return most > 0 ? std::optional(1 / most) : std::nullopt;
}

void take_settings(const Settings &settings, const RankTopology *places, SharedLinks &links) {
    std::optional<RackLines> lines;
    if (links.racks) lines = *links.racks;
    if (settings.rack_rate && places) {
        if (!lines) lines = lines_of_racks(*places);
        const double byte_ns = 1e9 / static_cast<double>(*settings.rack_rate);
        for (size_t network = 1; lines && network < lines->byte_ns.size(); network++)
            lines->byte_ns[network] = byte_ns;
    }
    const bool is_known = lines && lines->slowest_bytes_per_ns();
    links.racks = is_known ? std::make_shared<const RackLines>(std::move(*lines)) : nullptr;
}

// ---- Step counts

namespace {

// Returns how often the rank waits for messages that depend on what it did before: receives in a
// row count once. The author's order shows that, before decoding comes between.
uint32_t count_turns(const Schedule &author) {
    uint32_t turns = 0;
    bool receives = false;
    for (const Step &step : author.steps) {
        turns += step.verb == Verb::recv && !receives;
        receives = step.verb == Verb::recv;
    }
    return turns;
}

struct PeerSends {
    double all = 0, inner = 0; // chunks
};

// The counts of one rank.
struct RankStepCounts {
    uint32_t chunks = 0, outbox = 0, turns = 0, remote_peers = 0;
    ChunkCounts counts;
    std::map<uint32_t, PeerSends> local_sends; // by peer
};

bool is_between_hosts(const Problem &problem, uint32_t rank, uint32_t peer) {
    if (!problem.has_hosts()) return false;
    const Partition &hosts = problem.places->hosts();
    return hosts.group_of(peer) != hosts.group_of(rank);
}

void count(const Step &step, bool is_remote, bool is_lossless, ChunkCounts &c) {
    const bool is_inner = step.has(Step::inner);
    switch (step.verb) {
    case Verb::send:
        c.sends++;
        c.inner_sends += is_inner;
        c.remote_sends += is_remote;
        c.remote_inner_sends += is_remote && is_inner;
        break;
    case Verb::recv:
        c.recvs++;
        c.remote_recvs += is_remote;
        c.remote_inner_recvs += is_remote && is_inner;
        break;
    case Verb::encode:
        c.encodes += !(is_lossless && step.leaves_values());
        c.inner_encodes += is_inner;
        break;
    case Verb::decode:
        c.decodes++;
        c.inner_decodes += is_inner;
        break;
    case Verb::decode_add:
        c.decode_adds++;
        c.inner_decode_adds += is_inner;
        break;
    case Verb::copy:
    case Verb::reduce: c.copies += step.sources; break;
    }
}

Result<RankStepCounts> step_counts_of(const Algorithm &algorithm, const Problem &problem,
                                      uint32_t rank) {
    QCCL_TRY(const Schedule author, emit(algorithm, problem.collective, problem.team(rank)));
    QCCL_TRY(const Schedule placed, place_codec(author, problem.codec.owner));
    RankStepCounts t{.chunks = placed.chunks,
                     .outbox = placed.outbox,
                     .turns = count_turns(author),
                     .counts = {},
                     .local_sends = {}};
    std::set<uint32_t> remote_peers;
    const std::vector<uint32_t> place_in_series = places_in_series(placed);
    for (size_t i = 0; i < placed.steps.size(); i++) {
        const Step &step = placed.steps[i];
        const bool moves = step.verb == Verb::send || step.verb == Verb::recv;
        const bool is_remote = moves && is_between_hosts(problem, rank, step.peer);
        if (is_remote && step.verb == Verb::send) remote_peers.insert(step.peer);
        if (!is_remote && step.verb == Verb::send) {
            PeerSends &sends = t.local_sends[step.peer];
            sends.all++;
            sends.inner += step.has(Step::inner);
        }
        count(step, is_remote, problem.codec.is_lossless(), t.counts);
        t.counts.remote_series += is_remote && place_in_series[i] == 0;
    }
    t.remote_peers = static_cast<uint32_t>(remote_peers.size());
    return t;
}

constexpr std::array count_fields = {&ChunkCounts::sends,
                                     &ChunkCounts::recvs,
                                     &ChunkCounts::encodes,
                                     &ChunkCounts::decodes,
                                     &ChunkCounts::decode_adds,
                                     &ChunkCounts::copies,
                                     &ChunkCounts::inner_sends,
                                     &ChunkCounts::inner_encodes,
                                     &ChunkCounts::inner_decodes,
                                     &ChunkCounts::inner_decode_adds,
                                     &ChunkCounts::remote_sends,
                                     &ChunkCounts::remote_recvs,
                                     &ChunkCounts::remote_inner_sends,
                                     &ChunkCounts::remote_inner_recvs,
                                     &ChunkCounts::remote_series};

void take_greater(ChunkCounts &most, const ChunkCounts &other) {
    for (const auto field : count_fields) most.*field = std::max(most.*field, other.*field);
}

void take_greater(StepCounts &most, const RankStepCounts &other) {
    most.chunks = other.chunks;
    most.outbox = std::max(most.outbox, other.outbox);
    most.turns = std::max(most.turns, other.turns);
    most.remote_peers = std::max(most.remote_peers, other.remote_peers);
    take_greater(most.busiest, other.counts);
}

// Ranks differ in a broadcast (the root sends, and ranks after the root pass on), in trees, and
// where a team cannot be halved evenly (the last rank has the most to do). In a large team only
// such ranks are counted.
std::vector<uint32_t> ranks_to_count(const Problem &problem) {
    constexpr uint32_t most_counted = 16;
    std::vector<uint32_t> ranks(problem.ranks);
    std::iota(ranks.begin(), ranks.end(), 0U);
    if (problem.ranks <= most_counted) return ranks;
    const Team team = problem.team(problem.root);
    const std::vector<uint32_t> usual{team.rank, team.after(1), team.after(2), problem.ranks - 1};
    const CollectiveRow &row = row_of(problem.collective);
    if (!row.has_root || !has_part_per_rank(problem.collective)) return usual;
    const auto behind_root = [&](uint32_t distance) {
        return team.rank_at((team.position(team.root) + distance) % team.size);
    };
    // The ranks below the root in trees, which pass on the most parts.
    const uint32_t top = std::bit_floor(team.size - 1);
    return {team.rank,
            team.after(1),
            team.after(2),
            problem.ranks - 1,
            behind_root(top),
            behind_root(top / 2),
            behind_root(team.size - top),
            behind_root(top - 1)};
}

// Writing a schedule takes by far the most time, so each rank's schedule is written once.
class StepCounter {
public:
    StepCounter(const Algorithm &algorithm, const Problem &problem)
        : algorithm_(algorithm), problem_(problem) {}

    Result<const RankStepCounts *> of(uint32_t rank) {
        const auto known = by_rank_.find(rank);
        if (known != by_rank_.end()) return &known->second;
        QCCL_TRY(RankStepCounts step_counts, step_counts_of(algorithm_, problem_, rank));
        return &by_rank_.emplace(rank, std::move(step_counts)).first->second;
    }

private:
    const Algorithm &algorithm_;
    const Problem &problem_;
    std::map<uint32_t, RankStepCounts> by_rank_;
};

// Adds up what leaves one host.
Done add_host(StepCounter &counts_of_ranks, std::span<const uint32_t> ranks, StepCounts &most) {
    double sends = 0, inner_sends = 0;
    for (const uint32_t rank : ranks) {
        QCCL_TRY(const RankStepCounts *const one, counts_of_ranks.of(rank));
        sends += one->counts.remote_sends;
        inner_sends += one->counts.remote_inner_sends;
        take_greater(most, *one);
    }
    most.host_sends = std::max(most.host_sends, sends);
    most.host_inner_sends = std::max(most.host_inner_sends, inner_sends);
    return {};
}

// Adds up what the messages between a host's ranks put on each of its links.
Done add_local_links(StepCounter &counts_of_ranks, std::span<const uint32_t> ranks,
                     const LocalLinks &links, StepCounts &most) {
    const LocalLinks::Kind &kind = links.kinds[links.kind_of[ranks.front()]];
    std::vector<PeerSends> loads(kind.byte_ns.size());
    for (const uint32_t rank : ranks) {
        QCCL_TRY(const RankStepCounts *const one, counts_of_ranks.of(rank));
        for (const auto &[peer, sends] : one->local_sends)
            for (const uint32_t link : links.way(rank, peer)) {
                loads[link].all += sends.all;
                loads[link].inner += sends.inner;
                most.local_hop_ns = std::max(most.local_hop_ns, kind.byte_ns[link]);
            }
    }
    for (size_t link = 0; link < loads.size(); link++) {
        const PeerSends &load = loads[link];
        if (kind.byte_ns[link] * load.all <= most.local_line_ns + most.inner_local_line_ns)
            continue;
        most.inner_local_line_ns = kind.byte_ns[link] * load.inner;
        most.local_line_ns = kind.byte_ns[link] * (load.all - load.inner);
    }
    return {};
}

double count_remote_rounds(const Algorithm &algorithm, const Problem &problem,
                           const StepCounts &t) {
    if (!problem.has_hosts()) return 0;
    if (const auto counted = algorithm.row().outer_rounds)
        return std::min(t.rounds, counted(problem.collective, problem.team(), algorithm.choices()));
    const double messages = t.mean.sends + t.mean.recvs,
                 remote = t.mean.remote_sends + t.mean.remote_recvs;
    return messages == 0 ? 0 : std::ceil(t.rounds * remote / messages);
}

} // namespace

// Hosts differ in their number of ranks. Only the hosts of the counted ranks are examined.
Result<StepCounts> step_counts(const Algorithm &algorithm, const Problem &problem,
                               const SharedLinks &links) {
    const Team team = problem.team();
    StepCounts t;
    t.rounds = algorithm.rounds(problem.collective, team);
    if (!problem.codec.is_lossless()) {
        t.noise = algorithm.noise(problem.collective, team, problem.codec.owner);
        t.inner_noise = algorithm.inner_noise(problem.collective, team);
    }
    StepCounter counts_of_ranks(algorithm, problem);
    std::set<size_t> hosts;
    const std::vector<uint32_t> ranks = ranks_to_count(problem);
    for (const uint32_t rank : ranks) {
        QCCL_TRY(const RankStepCounts *const one, counts_of_ranks.of(rank));
        take_greater(t, *one);
        for (const auto field : count_fields)
            t.mean.*field += one->counts.*field / static_cast<double>(ranks.size());
        if (problem.has_hosts()) hosts.insert(problem.places->hosts().group_of(rank));
    }
    for (const size_t host : hosts) {
        const auto on_host = problem.places->hosts().ranks(host);
        QCCL_TRY(add_host(counts_of_ranks, on_host, t));
        if (links.local) QCCL_TRY(add_local_links(counts_of_ranks, on_host, *links.local, t));
    }
    if (links.local && hosts.empty()) {
        std::vector<uint32_t> all(problem.ranks);
        std::iota(all.begin(), all.end(), 0U);
        QCCL_TRY(add_local_links(counts_of_ranks, all, *links.local, t));
    }
    if (links.racks && problem.has_hosts()) {
        QCCL_TRY(t.rack_line_ns, rack_load(algorithm, problem.collective, team, *links.racks));
    }
    t.remote_rounds = count_remote_rounds(algorithm, problem, t);
    return t;
}

// ---- Load of racks' links

namespace {

// Chunks on each network's link to the network around it.
class LineLoads {
public:
    explicit LineLoads(const RackLines &lines)
        : lines_(lines), up_(lines.parent.size()), down_(lines.parent.size()) {}

    // Counts the rank's sends `weight` times.
    void add(uint32_t rank, const Schedule &author, double weight) {
        for (const Step &step : author.steps)
            if (step.verb == Verb::send)
                lines_.each_line(lines_.rack_of[rank], lines_.rack_of[step.peer],
                                 [&](uint32_t network, bool is_up) {
                                     (is_up ? up_ : down_)[network] += weight;
                                 });
    }

    double busiest_ns() const {
        double most = 0;
        for (size_t line = 0; line < up_.size(); line++)
            most = std::max(most, lines_.byte_ns[line] * std::max(up_[line], down_[line]));
        return most;
    }

private:
    const RackLines &lines_;
    std::vector<double> up_, down_; // by network
};

// Returns the ranks whose schedules differ from those of other ranks in their rack: the root, the
// ranks that send to another rack along a ring, and their neighbours, which differ in shifted
// trees.
std::set<uint32_t> ranks_apart(const Team &team, const RackLines &lines) {
    std::set<uint32_t> apart = {team.root};
    for (uint32_t number = 0; number < team.places->rings(); number++) {
        const std::span<const uint32_t> ring = team.places->ring(number);
        for (size_t i = 0; i < ring.size(); i++) {
            const auto behind = [&](size_t steps) { return ring[(i + steps) % ring.size()]; };
            if (lines.rack_of[behind(1)] == lines.rack_of[behind(2)]) continue;
            for (size_t steps = 0; steps < 4; steps++) apart.insert(behind(steps));
        }
    }
    return apart;
}

// Returns the distance between the ranks of a rack that are counted. The distance has no factor in
// common with the number of ranks on a host, so that the counted ranks cover all positions within
// hosts.
size_t sample_distance(size_t ranks, size_t most, size_t ranks_of_host) {
    constexpr size_t least = 2;
    size_t distance = ranks / std::max(least, most);
    if (distance < 2) return 1;
    while (std::gcd(distance, ranks_of_host) != 1) distance++;
    return distance;
}

} // namespace

Result<double> rack_load(const Algorithm &algorithm, Collective collective, const Team &team,
                         const RackLines &lines, size_t most_steps) {
    const auto author = [&](uint32_t rank) {
        Team own = team;
        own.rank = rank;
        return emit(algorithm, collective, own);
    };
    LineLoads loads(lines);
    const auto count = [&](uint32_t rank, double weight) -> Done {
        QCCL_TRY(const Schedule own, author(rank));
        loads.add(rank, own, weight);
        return {};
    };
    const std::set<uint32_t> apart = ranks_apart(team, lines);
    std::map<uint32_t, std::vector<uint32_t>> alike; // other ranks, by network, in ring order
    for (uint32_t position = 0; position < team.size; position++) {
        const uint32_t rank = team.rank_at(position);
        if (!apart.contains(rank)) alike[lines.rack_of[rank]].push_back(rank);
    }
    for (const uint32_t rank : apart) QCCL_TRY(count(rank, 1));
    // Writing a schedule takes time for each of its steps, and a little for each rank of the team.
    QCCL_TRY(const Schedule usual, author(team.rank_at(team.size / 2)));
    const size_t steps = std::max<size_t>({1, usual.steps.size(), team.size / 8});
    const size_t most = most_steps / (steps * std::max<size_t>(1, alike.size()));
    for (const auto &[rack, ranks] : alike) {
        const size_t distance =
            sample_distance(ranks.size(), most, team.places->hosts().most_ranks());
        const size_t counted = (ranks.size() + distance - 1) / distance;
        for (size_t i = 0; i < counted; i++)
            QCCL_TRY(count(ranks[i * distance],
                           static_cast<double>(ranks.size()) / static_cast<double>(counted)));
    }
    return loads.busiest_ns();
}

} // namespace qccl
