#include "coll/hierarchy.hpp"

#include "coll/direct.hpp"
#include "coll/halving.hpp"
#include "coll/nest.hpp"
#include "coll/phases.hpp"
#include "coll/ring.hpp"

#include <algorithm>
#include <deque>
#include <map>

namespace qccl {

namespace {

constexpr const Phases *inner_phases[] = {&direct_phases, &ring_phases, &halving_phases};
constexpr const Phases *outer_phases[] = {&ring_phases, &halving_phases};

// Above the nearest groups a member's part is a sum, which some phases cannot collect.
const Phases &phases_of(const Nest &nest, const Choices &choices, uint32_t level) {
    return level == 0 && !nest.is_top(0) ? *inner_phases[choices[0]] : *outer_phases[choices[1]];
}

bool has_leaders(const Choices &choices) { return choices[2] == 1; }

// Who ends up with each chunk.
std::vector<uint32_t> owners_of(Collective collective, const Team &t, const Nest &nest,
                                const Choices &choices) {
    if (collective == Collective::broadcast) return {t.root};
    return collective == Collective::all_reduce ? nest.owners(has_leaders(choices))
                                                : ranks_in_turn(t.size);
}

// The groups that the rank is in at the level, each with the chunks that it deals with there.
// Groups come in the order of their first chunks, the same on all ranks: nobody waits for one that
// waits for him in another group.
std::vector<Group> groups_of(const Team &t, const Nest &nest, uint32_t level,
                             std::span<const uint32_t> owners) {
    std::vector<Group> groups;
    const uint32_t own = nest.group_of(level, t.rank);
    for (uint32_t c = 0; c < owners.size(); c++) {
        const bool is_in = level == 0 || nest.carrier(level - 1, nest.group_of(level - 1, t.rank),
                                                      owners[c]) == t.rank;
        if (!is_in) continue;
        auto found = groups.begin();
        if (level != 0 || groups.empty()) { // ranks are the members for every chunk
            const auto members = nest.members(level, own, owners[c]);
            found = std::find_if(groups.begin(), groups.end(),
                                 [&](const Group &g) { return g.ranks == members; });
            if (found == groups.end()) found = groups.insert(groups.end(), Group(members, t.rank));
        }
        found->chunks[found->position(nest.carrier(level, own, owners[c]))].push_back(c);
    }
    return groups;
}

// One rank's schedule while it is written.
class Writer {
public:
    Writer(Collective collective, const Team &t, const Choices &choices)
        : t_(t), choices_(choices), nest_(t), owners_(owners_of(collective, t, nest_, choices)) {
        s_.chunks = static_cast<uint32_t>(owners_.size());
        for (uint32_t level = 0; level < nest_.levels(); level++)
            groups_.push_back(groups_of(t_, nest_, level, owners_));
    }

    // From the nearest groups to the top. What is sent below it is on its way to be summed further.
    void collect() {
        Parts parts = inputs(s_);
        for (uint32_t level = 0; level < nest_.levels(); level++) {
            const size_t first = s_.steps.size();
            for (const Group &group : groups_[level]) phases(level).collect(s_, group, parts);
            for (size_t i = first; i < s_.steps.size() && !nest_.is_top(level); i++)
                if (!computes(s_.steps[i].verb)) s_.steps[i].flags |= Step::inner;
        }
        each_own([&](uint32_t c) { s_.finish(output(c), parts[c]); });
    }

    void copy_own() {
        each_own([&](uint32_t c) { s_.copy(output(c), input(c)); });
    }

    void deliver() {
        for (uint32_t level = nest_.levels(); level-- > 0;)
            for (const Group &group : groups_[level]) phases(level).deliver(s_, group);
    }

    Schedule take(uint32_t outbox) && {
        s_.outbox = t_.size == 1 ? 0 : outbox;
        return std::move(s_);
    }
    uint32_t chunks() const { return s_.chunks; }

private:
    const Phases &phases(uint32_t level) const { return phases_of(nest_, choices_, level); }
    template <class Visit> void each_own(Visit visit) {
        for (uint32_t c = 0; c < owners_.size(); c++)
            if (owners_[c] == t_.rank) visit(c);
    }

    const Team &t_;
    const Choices &choices_;
    const Nest nest_;
    const std::vector<uint32_t> owners_;
    std::vector<std::vector<Group>> groups_; // by level
    Schedule s_;
};

using Term = SumOrder::Term;

Term term_of(const Nest &nest, const Choices &choices, uint32_t level, uint32_t group,
             uint32_t owner) {
    std::vector<Term> members;
    for (const uint32_t part : nest.parts(level, group))
        members.push_back(level == 0 ? Term{.rank = part}
                                     : term_of(nest, choices, level - 1, part, owner));
    const auto ranks = nest.members(level, group, owner);
    const auto end = std::find(ranks.begin(), ranks.end(), nest.carrier(level, group, owner));
    return phases_of(nest, choices, level)
        .fold(std::move(members), static_cast<uint32_t>(end - ranks.begin()));
}

// Contributions in all partial sums that are encoded at the level, in units of all contributions of
// a result.
double encoded_at(Collective collective, const Team &t, const Nest &nest, const Choices &choices,
                  uint32_t level) {
    const auto owners = owners_of(collective, t, nest, choices);
    double total = 0;
    for (const uint32_t owner : owners)
        for (uint32_t group = 0; group < nest.groups(level); group++) {
            const auto ranks = nest.members(level, group, owner);
            const auto end =
                std::find(ranks.begin(), ranks.end(), nest.carrier(level, group, owner));
            total += phases_of(nest, choices, level)
                         .encoded(nest.weights(level, group),
                                  static_cast<uint32_t>(end - ranks.begin()));
        }
    return total / static_cast<double>(owners.size()) / t.size;
}

} // namespace

// A rank sends each chunk's part at most once, or encodes its result: no wire slot is waited for.
Schedule all_reduce_hierarchy(const Team &t, const Choices &choices) {
    Writer writer(Collective::all_reduce, t, choices);
    writer.collect();
    writer.deliver();
    const uint32_t chunks = writer.chunks();
    return std::move(writer).take(chunks);
}

Schedule reduce_scatter_hierarchy(const Team &t, const Choices &choices) {
    Writer writer(Collective::reduce_scatter, t, choices);
    writer.collect();
    return std::move(writer).take(t.size - 1);
}

Schedule all_gather_hierarchy(const Team &t, const Choices &choices) {
    Writer writer(Collective::all_gather, t, choices);
    writer.copy_own();
    writer.deliver();
    return std::move(writer).take(1);
}

Schedule broadcast_hierarchy(const Team &t, const Choices &choices) {
    Writer writer(Collective::broadcast, t, choices);
    writer.copy_own();
    writer.deliver();
    return std::move(writer).take(1);
}

SumOrder by_hierarchy(Collective collective, const Team &t, const Choices &choices,
                      uint32_t chunk) {
    const Nest nest(t);
    const auto owners = owners_of(collective, t, nest, choices);
    const uint32_t owner = owners[chunk % owners.size()];
    return SumOrder::of(term_of(nest, choices, nest.levels() - 1, 0, owner), t.size);
}

namespace {

// The longest chain of messages that wait for one another.
uint32_t count_rounds(Collective collective, const Team &t, const Choices &choices) {
    constexpr Emit emitters[] = {all_reduce_hierarchy, reduce_scatter_hierarchy,
                                 all_gather_hierarchy, broadcast_hierarchy};
    struct Run {
        std::vector<Step> steps;
        size_t next = 0;
        uint32_t rounds = 0;
    };
    std::vector<Run> runs(t.size);
    Team one = t;
    for (one.rank = 0; one.rank < t.size; one.rank++)
        runs[one.rank].steps = emitters[static_cast<size_t>(collective)](one, choices).steps;
    std::map<std::pair<uint32_t, uint32_t>, std::deque<uint32_t>> sent; // from, to: rounds
    for (bool has_moved = true; has_moved;) {
        has_moved = false;
        for (uint32_t rank = 0; rank < t.size; rank++)
            for (Run &run = runs[rank]; run.next < run.steps.size(); run.next++) {
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
    return std::max_element(runs.begin(), runs.end(),
                            [](const Run &a, const Run &b) { return a.rounds < b.rounds; })
        ->rounds;
}

} // namespace

// Up and down, through one tier after the other. Carriers that deal with several groups at a level
// take more, and uneven halves fewer, which is counted for teams that are not too large for it.
uint32_t rounds_hierarchy(Collective collective, const Team &t, const Choices &choices) {
    constexpr uint32_t most_counted = 128;
    if (t.size <= most_counted) return count_rounds(collective, t, choices);
    const Nest nest(t);
    uint32_t rounds = 0;
    for (uint32_t level = 0; level < nest.levels(); level++)
        rounds += phases_of(nest, choices, level).rounds(nest.largest(level));
    return collective == Collective::all_reduce ? 2 * rounds : rounds;
}

uint32_t outer_rounds_hierarchy(Collective collective, const Team &t, const Choices &choices) {
    const Nest nest(t);
    const uint32_t top = nest.levels() - 1;
    const uint32_t rounds = phases_of(nest, choices, top).rounds(nest.largest(top));
    return collective == Collective::all_reduce ? 2 * rounds : rounds;
}

double noise_hierarchy(Collective collective, const Team &t, const Choices &choices) {
    if (t.size == 1) return 0;
    if (!reduces(collective)) return 1;
    const Nest nest(t);
    const double parts = encoded_at(collective, t, nest, choices, nest.levels() - 1);
    return collective == Collective::all_reduce ? parts + 1 : parts;
}

double inner_noise_hierarchy(Collective collective, const Team &t, const Choices &choices) {
    if (!reduces(collective)) return 0;
    const Nest nest(t);
    double parts = 0;
    for (uint32_t level = 0; !nest.is_top(level); level++)
        parts += encoded_at(collective, t, nest, choices, level);
    return parts;
}

} // namespace qccl
