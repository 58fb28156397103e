#include "plan/rack_load.hpp"

#include <algorithm>
#include <map>

namespace qccl {

namespace {

// Chunks on a network's line to the network around it.
struct LineSends {
    double outer = 0, inner = 0;
};

class LineLoads {
public:
    explicit LineLoads(const RackLines &lines)
        : lines_(lines), up_(lines.parent.size()), down_(lines.parent.size()) {}

    // The rank's schedule, as so many ranks' like it.
    void add(uint32_t rank, const Schedule &author, double alike) {
        for (const Step &step : author.steps)
            if (step.verb == Verb::send)
                add_send(lines_.rack_of[rank], lines_.rack_of[step.peer],
                         step.has(Step::inner) ? &LineSends::inner : &LineSends::outer, alike);
    }

    RackLoad busiest() const {
        RackLoad most;
        for (size_t line = 0; line < up_.size(); line++)
            for (const LineSends &sends : {up_[line], down_[line]}) {
                const double byte_ns = lines_.byte_ns[line];
                if (byte_ns * (sends.outer + sends.inner) > most.outer_ns + most.inner_ns)
                    most = {byte_ns * sends.outer, byte_ns * sends.inner};
            }
        return most;
    }

private:
    // Networks stand before those that they contain: the one that stands later is left first.
    void add_send(uint32_t from, uint32_t to, double LineSends::*codec, double times) {
        while (from != to) {
            uint32_t &inside = from > to ? from : to;
            (from > to ? up_ : down_)[inside].*codec += times;
            inside = lines_.parent[inside];
        }
    }

    const RackLines &lines_;
    std::vector<LineSends> up_, down_; // by network
};

// Of the ranks of a rack, in the order in which rings pass them, those whose schedules are written:
// the first and the last, which alone send to other racks along rings, the root, and some of the
// others. An odd distance between these meets all places within hosts.
class Sample {
public:
    Sample(const std::vector<uint32_t> &ranks, uint32_t root, size_t most) {
        for (const uint32_t rank : ranks)
            (rank == ranks.front() || rank == ranks.back() || rank == root ? alone_ : others_)
                .push_back(rank);
        constexpr size_t least = 2;
        most = std::max(least, most);
        if (others_.size() > most) distance_ = (others_.size() / most) | 1;
    }

    // Calls take(rank, ranks that it speaks for).
    template <class Take> Done each(Take take) const {
        for (const uint32_t rank : alone_) QCCL_TRY(take(rank, 1.0));
        const size_t taken = (others_.size() + distance_ - 1) / distance_;
        for (size_t i = 0; i < taken; i++)
            QCCL_TRY(take(others_[i * distance_],
                          static_cast<double>(others_.size()) / static_cast<double>(taken)));
        return {};
    }

private:
    std::vector<uint32_t> alone_, others_;
    size_t distance_ = 1;
};

} // namespace

Result<RackLoad> rack_load(const Algorithm &algorithm, Collective collective, const Team &team,
                           const RackLines &lines) {
    std::map<uint32_t, std::vector<uint32_t>> racks; // ranks by network, in the order of rings
    for (uint32_t position = 0; position < team.size; position++) {
        const uint32_t rank = team.rank_at(position);
        racks[lines.rack_of[rank]].push_back(rank);
    }
    const auto author = [&](uint32_t rank) {
        Team own = team;
        own.rank = rank;
        return emit(algorithm, collective, own);
    };
    // Enough for all ranks' schedules where they are short, as trees' are, or the team is small.
    constexpr size_t most_steps = size_t{1} << 17;
    QCCL_TRY(const Schedule usual, author(team.rank_at(team.size / 2)));
    const size_t most = most_steps / (std::max<size_t>(1, usual.steps.size()) * racks.size());
    LineLoads loads(lines);
    for (const auto &[rack, ranks] : racks)
        QCCL_TRY(Sample(ranks, team.root, most).each([&](uint32_t rank, double alike) -> Done {
            QCCL_TRY(const Schedule own, author(rank));
            loads.add(rank, own, alike);
            return {};
        }));
    return loads.busiest();
}

} // namespace qccl
