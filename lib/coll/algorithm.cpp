// The table of algorithms and the functions that look algorithms up and write their schedules.
#include "coll/algorithm.hpp"

#include "coll/direct.hpp"
#include "coll/doubling.hpp"
#include "coll/halving.hpp"
#include "coll/hierarchy.hpp"
#include "coll/oneshot.hpp"
#include "coll/ring.hpp"
#include "coll/tree.hpp"

namespace qccl {

namespace {

// Adapters for functions of algorithms without keys.
template <Schedule (*f)(const Team &)> Schedule plain(const Team &team, const Choices &) {
    return f(team);
}
template <SumOrder (*f)(Collective, uint32_t, uint32_t)>
SumOrder plain(Collective collective, const Team &team, const Choices &, uint32_t chunk) {
    return f(collective, team.size, chunk);
}
template <auto f> auto plain(Collective collective, const Team &team, const Choices &) {
    return f(collective, team.size);
}

constexpr AlgorithmKey ring_keys[] = {{"rings", ring_words}};
constexpr AlgorithmKey tree_keys[] = {{"shape", tree_shapes}};
constexpr AlgorithmKey hierarchy_keys[] = {{"inner", inner_words},
                                           {"outer", outer_words},
                                           {"share", share_words},
                                           {"inner_codec", inner_codec_words}};

// If two algorithms cost the same, the planner takes the first one. Emitters are in the order of
// Collective: all_reduce, reduce_scatter, all_gather, broadcast, barrier.
constexpr AlgorithmRow table[] = {
    {.name = "direct",
     .keys = {},
     .order = plain<by_rank>,
     .emitters = {plain<all_reduce_direct>, plain<reduce_scatter_direct>, plain<all_gather_direct>,
                  plain<broadcast_direct>, nullptr},
     .rounds = plain<rounds_direct>,
     .noise = plain<noise_direct>,
     .exchanges = 2},
    {.name = "ring",
     .keys = ring_keys,
     .order = order_ring,
     .emitters = {all_reduce_ring, reduce_scatter_ring, all_gather_ring, broadcast_ring, nullptr},
     .rounds = plain<rounds_ring>,
     .noise = plain<noise_ring>,
     .outer_rounds = [](Collective collective, const Team &team,
                        const Choices &) { return outer_rounds_ring(collective, team); },
     .sums_on_the_way = true},
    {.name = "halving",
     .keys = {},
     .order = plain<by_halving>,
     .emitters = {plain<all_reduce_halving>, plain<reduce_scatter_halving>,
                  plain<all_gather_halving>, nullptr, nullptr},
     .rounds = plain<rounds_halving>,
     .noise = plain<noise_halving>,
     .sums_on_the_way = true},
    {.name = "tree",
     .keys = tree_keys,
     .order = by_tree,
     .emitters = {all_reduce_tree, nullptr, nullptr, broadcast_tree, nullptr},
     .rounds = rounds_tree,
     .noise = noise_tree,
     .outer_rounds = outer_rounds_tree,
     .sums_on_the_way = true},
    {.name = "hierarchy",
     .keys = hierarchy_keys,
     .order = by_hierarchy,
     .emitters = {all_reduce_hierarchy, reduce_scatter_hierarchy, all_gather_hierarchy,
                  broadcast_hierarchy, nullptr},
     .rounds = rounds_hierarchy,
     .noise = noise_hierarchy,
     .inner_noise = inner_noise_hierarchy,
     .outer_rounds = outer_rounds_hierarchy,
     .sums_on_the_way = true},
    {.name = "oneshot",
     .keys = {},
     .order = plain<by_rank>,
     .emitters = {plain<all_reduce_oneshot>, plain<reduce_scatter_oneshot>,
                  plain<all_gather_direct>, plain<broadcast_oneshot>, plain<barrier_oneshot>},
     .rounds = plain<rounds_oneshot>,
     .noise = plain<noise_oneshot>,
     .exchanges = 1,
     .own = OwnInput::as_encoded},
    {.name = "doubling",
     .keys = {},
     .order = [](Collective collective, const Team &team, const Choices &,
                 uint32_t chunk) { return by_doubling(collective, team, chunk); },
     .emitters = {plain<all_reduce_doubling>, nullptr, nullptr, nullptr, plain<barrier_doubling>},
     .rounds = plain<rounds_doubling>,
     .noise = plain<noise_doubling>,
     .own = OwnInput::as_encoded,
     .sums_on_the_way = true},
};

constexpr Algorithm by_all_rings(table[1], {1});
constexpr Algorithm candidates[] = {
    Algorithm(table[0]),      Algorithm(table[1]), Algorithm(table[2]), Algorithm(table[3]),
    Algorithm(table[3], {1}), Algorithm(table[4]), Algorithm(table[5]), Algorithm(table[6])};

} // namespace

std::span<const AlgorithmRow> algorithm_table() { return table; }
std::span<const Algorithm> algorithms() { return candidates; }

std::vector<Algorithm> algorithms_for(const Team &team) {
    std::vector<Algorithm> all(std::begin(candidates), std::end(candidates));
    if (team.places && team.places->rings() > 1) all.push_back(by_all_rings);
    return all;
}

OrderOf Algorithm::order(const Team &team) const {
    return [*this, team](Collective collective, uint32_t ranks, uint32_t chunk) {
        Team whole = team;
        whole.size = ranks;
        return row_->order(collective, whole, choices_, chunk);
    };
}

std::string_view Algorithm::word(std::string_view key) const {
    for (size_t i = 0; i < row_->keys.size(); i++)
        if (row_->keys[i].name == key) return row_->keys[i].words[choices_[i]];
    return {};
}

Result<Schedule> emit(const Algorithm &algorithm, Collective collective, const Team &team) {
    if (!algorithm.has(collective))
        return Error::make(Code::invalid_argument, "there is no %s by %s", name(collective),
                           spec(algorithm).c_str());
    if (team.rank >= team.size || team.root >= team.size)
        return Error::make(Code::invalid_argument, "rank %u or root %u is not one of %u ranks",
                           team.rank, team.root, team.size);
    return algorithm.row().emitters[static_cast<size_t>(collective)](team, algorithm.choices());
}

} // namespace qccl
