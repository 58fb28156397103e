// Counts the sends of ranks on the links that they cross.
#include "plan/rack_load.hpp"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

namespace qccl {

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
