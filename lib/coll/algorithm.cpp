// The table of algorithms, the functions that look algorithms up and write their schedules, and the
// parser and writer of their spec strings.
#include "coll/algorithm.hpp"

#include "base/text.hpp"
#include "coll/emitters.hpp"

#include <algorithm>

namespace qccl {

// ---- Table

namespace {

// Adapters for functions of algorithms without keys.
template <Schedule (*f)(const Team &)> Schedule plain(const Team &team, const Choices &) {
    return f(team);
}
template <SumOrder (*f)(Collective, uint32_t, uint32_t)>
SumOrder plain(Collective collective, const Team &team, const Choices &, uint32_t chunk) {
    return f(collective, team.size, chunk);
}
template <Collective collective> Schedule hierarchy(const Team &team, const Choices &choices) {
    return emit_hierarchy(collective, team, choices);
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

// If two algorithms cost the same, the planner takes the first one.
constexpr AlgorithmRow table[] = {
    {.name = "direct",
     .keys = {},
     .order = plain<by_rank>,
     .emitters = by_collective({{Collective::all_reduce, plain<all_reduce_direct>},
                                {Collective::reduce_scatter, plain<reduce_scatter_direct>},
                                {Collective::all_gather, plain<all_gather_direct>},
                                {Collective::broadcast, plain<broadcast_direct>},
                                {Collective::reduce, plain<reduce_direct>},
                                {Collective::gather, plain<gather_direct>},
                                {Collective::scatter, plain<scatter_direct>},
                                {Collective::all_to_all, plain<all_to_all_direct>},
                                {Collective::send, plain<send_direct>},
                                {gather_v, plain<gather_direct>},
                                {scatter_v, plain<scatter_direct>},
                                {all_to_all_v, plain<all_to_all_direct>}}),
     .rounds = plain<rounds_direct>,
     .noise = plain<noise_direct>,
     .exchanges = 2},
    {.name = "ring",
     .keys = ring_keys,
     .order = order_ring,
     .emitters = by_collective({{Collective::all_reduce, all_reduce_ring},
                                {Collective::reduce_scatter, reduce_scatter_ring},
                                {Collective::all_gather, all_gather_ring},
                                {Collective::broadcast, broadcast_ring},
                                {Collective::reduce, reduce_ring}}),
     .rounds = plain<rounds_ring>,
     .noise = plain<noise_ring>,
     .outer_rounds = [](Collective collective, const Team &team,
                        const Choices &) { return outer_rounds_ring(collective, team); },
     .sums_on_the_way = true},
    {.name = "halving",
     .keys = {},
     .order = plain<by_halving>,
     .emitters = by_collective({{Collective::all_reduce, plain<all_reduce_halving>},
                                {Collective::reduce_scatter, plain<reduce_scatter_halving>},
                                {Collective::all_gather, plain<all_gather_halving>},
                                {Collective::reduce, plain<reduce_halving>}}),
     .rounds = [](Collective collective, const Team &team,
                  const Choices &) { return rounds_halving(collective, team); },
     .noise = plain<noise_halving>,
     .sums_on_the_way = true},
    {.name = "tree",
     .keys = tree_keys,
     .order = by_tree,
     .emitters = by_collective({{Collective::all_reduce, all_reduce_tree},
                                {Collective::broadcast, broadcast_tree},
                                {Collective::reduce, reduce_tree},
                                {Collective::gather, gather_tree},
                                {Collective::scatter, scatter_tree}}),
     .rounds = rounds_tree,
     .noise = noise_tree,
     .outer_rounds = outer_rounds_tree,
     .sums_on_the_way = true},
    {.name = "hierarchy",
     .keys = hierarchy_keys,
     .order = by_hierarchy,
     .emitters = by_collective({{Collective::all_reduce, hierarchy<Collective::all_reduce>},
                                {Collective::reduce_scatter, hierarchy<Collective::reduce_scatter>},
                                {Collective::all_gather, hierarchy<Collective::all_gather>},
                                {Collective::broadcast, hierarchy<Collective::broadcast>},
                                {Collective::reduce, hierarchy<Collective::reduce>},
                                {Collective::all_to_all, hierarchy<Collective::all_to_all>}}),
     .rounds = rounds_hierarchy,
     .noise = noise_hierarchy,
     .inner_noise = inner_noise_hierarchy,
     .outer_rounds = outer_rounds_hierarchy,
     .sums_on_the_way = true},
    {.name = "oneshot",
     .keys = {},
     .order = plain<by_rank>,
     .emitters = by_collective({{Collective::all_reduce, plain<all_reduce_oneshot>},
                                {Collective::reduce_scatter, plain<reduce_scatter_oneshot>},
                                {Collective::all_gather, plain<all_gather_direct>},
                                {Collective::broadcast, plain<broadcast_oneshot>},
                                {Collective::barrier, plain<barrier_oneshot>},
                                {Collective::reduce, plain<reduce_oneshot>},
                                {Collective::gather, plain<gather_direct>},
                                {Collective::scatter, plain<scatter_direct>},
                                {Collective::all_to_all, plain<all_to_all_direct>},
                                {Collective::send, plain<send_direct>},
                                {Collective::scan, plain<scan_oneshot>},
                                {Collective::exscan, plain<exscan_oneshot>},
                                {gather_v, plain<gather_direct>},
                                {scatter_v, plain<scatter_direct>},
                                {all_to_all_v, plain<all_to_all_direct>}}),
     .rounds = plain<rounds_oneshot>,
     .noise = plain<noise_oneshot>,
     .exchanges = 1,
     .own = OwnInput::as_encoded},
    {.name = "doubling",
     .keys = {},
     .order = [](Collective collective, const Team &team, const Choices &,
                 uint32_t chunk) { return by_doubling(collective, team, chunk); },
     .emitters = by_collective({{Collective::all_reduce, plain<all_reduce_doubling>},
                                {Collective::barrier, plain<barrier_doubling>},
                                {Collective::scan, plain<scan_doubling>},
                                {Collective::exscan, plain<exscan_doubling>}}),
     .rounds = plain<rounds_doubling>,
     .noise = plain<noise_doubling>,
     .own = OwnInput::as_encoded,
     .sums_on_the_way = true},
    {.name = "pairwise",
     .keys = {},
     .order = plain<by_rank>,
     .emitters = by_collective({{Collective::all_to_all, plain<all_to_all_pairwise>},
                                {all_to_all_v, plain<all_to_all_pairwise>}}),
     .rounds = plain<rounds_pairwise>,
     .noise = plain<noise_of_parts>},
    {.name = "bruck",
     .keys = {},
     .order = plain<by_rank>,
     .emitters = by_collective({{Collective::all_gather, plain<all_gather_bruck>},
                                {Collective::all_to_all, plain<all_to_all_bruck>}}),
     .rounds = plain<rounds_bruck>,
     .noise = plain<noise_bruck>},
    {.name = "chain",
     .keys = {},
     .order = [](Collective collective, const Team &team, const Choices &,
                 uint32_t chunk) { return by_chain(collective, team, chunk); },
     .emitters = by_collective({{Collective::reduce, plain<reduce_chain>},
                                {Collective::scan, plain<scan_chain>},
                                {Collective::exscan, plain<exscan_chain>}}),
     .rounds = plain<rounds_chain>,
     .noise = plain<noise_chain>,
     .outer_rounds = [](Collective collective, const Team &team,
                        const Choices &) { return outer_rounds_chain(collective, team); },
     .sums_on_the_way = true},
    {.name = "neighbour",
     .keys = {},
     .order = plain<by_rank>,
     .emitters = by_collective({{Collective::all_gather, plain<all_gather_neighbour>}}),
     .rounds = plain<rounds_neighbour>,
     .noise = plain<noise_neighbour>},
};

constexpr Algorithm by_all_rings(table[1], {1});
constexpr Algorithm candidates[] = {
    Algorithm(table[0]),      Algorithm(table[1]), Algorithm(table[2]), Algorithm(table[3]),
    Algorithm(table[3], {1}), Algorithm(table[4]), Algorithm(table[5]), Algorithm(table[6]),
    Algorithm(table[7]),      Algorithm(table[8]), Algorithm(table[9]), Algorithm(table[10])};
static_assert(std::ranges::all_of(table,
                                  [](const AlgorithmRow &row) {
                                      return std::ranges::any_of(
                                          candidates, [&](const Algorithm &candidate) {
                                              return &candidate.row() == &row;
                                          });
                                  }),
              "the planner chooses from the candidates alone");
static_assert(std::ranges::all_of(table,
                                  [](const AlgorithmRow &row) {
                                      return row.keys.size() <= Choices().size();
                                  }),
              "Choices has room for fewer keys");

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

bool Algorithm::keeps_rank_order(Collective collective, const Team &team) const {
    // No algorithm cuts a vector into more chunks of different orders.
    for (uint32_t chunk = 0; chunk < team.size; chunk++) {
        const SumOrder order = row_->order(collective, team, choices_, chunk);
        for (uint32_t rank = 0; rank < team.size; rank++) {
            const bool is_next = order.operand_end(rank) == rank + 1 && order.sum_begin(rank) == 0;
            if (order.place(rank) != rank || (rank > 0 && !is_next)) return false;
        }
    }
    return true;
}

Emit Algorithm::emitter(Collective collective) const {
    const auto v_form_of = row_of(collective).v_form_of;
    const bool has_all_counts = v_form_of && are_counts_common(collective);
    return row_->emitters[static_cast<size_t>(has_all_counts ? *v_form_of : collective)];
}

// The rank's own part of an all-gather is then exact. A broadcast is judged by the other ranks.
NoiseMoments Algorithm::noise(Collective collective, const Team &team, OwnerKeeps owner) const {
    const NoiseMoments noise = row_->noise(collective, team, choices_);
    const bool has_exact_part = owner == OwnerKeeps::exact && row_of(collective).gathers;
    return has_exact_part ? noise * ((team.size - 1.0) / team.size) : noise;
}

std::string_view Algorithm::word(std::string_view key) const {
    for (size_t i = 0; i < row_->keys.size(); i++)
        if (row_->keys[i].name == key) return row_->keys[i].words[choices_[i]];
    return {};
}

Result<Schedule> emit(const Algorithm &algorithm, Collective collective, const Team &team) {
    if (!algorithm.has(collective))
        return invalid_argument("there is no %s by %s", name(collective), spec(algorithm).c_str());
    if (team.rank >= team.size || team.root >= team.size)
        return invalid_argument("rank %u or root %u is not one of %u ranks", team.rank, team.root,
                                team.size);
    return algorithm.emitter(collective)(team, algorithm.choices());
}

// ---- Specs

namespace {

template <class Row> const Row *find(std::span<const Row> rows, std::string_view name) {
    const auto found =
        std::find_if(rows.begin(), rows.end(), [&](const Row &row) { return row.name == name; });
    return found == rows.end() ? nullptr : &*found;
}

Done read_key(const AlgorithmRow &row, std::string_view item, const std::string &who,
              Choices &choices, uint32_t &given) {
    const auto [name, word, has_word] = parted_at(item, '=');
    const AlgorithmKey *const key = find(row.keys, name);
    if (!key) return no_choice(who + ": key of " + std::string(row.name), name, names_of(row.keys));
    const auto number = static_cast<uint32_t>(key - row.keys.data());
    if (!has_word)
        return invalid_argument("%s: %s has no value; write %s=VALUE", who.c_str(),
                                key->name.data(), key->name.data());
    if ((given >> number & 1U) != 0)
        return invalid_argument("%s: %s is given twice", who.c_str(), key->name.data());
    given |= 1U << number;
    const auto found = std::find(key->words.begin(), key->words.end(), word);
    if (found == key->words.end())
        return no_choice(who + ": " + std::string(name), word,
                         Names(key->words.begin(), key->words.end()));
    choices[number] = static_cast<uint8_t>(found - key->words.begin());
    return {};
}

} // namespace

Result<Algorithm> parse_algorithm(std::string_view text, std::string_view who,
                                  const Names &besides) {
    const auto [word, keys, has_keys] = parted_at(text, ':');
    const AlgorithmRow *const row = find(algorithm_table(), word);
    const std::string asker(who);
    if (!row) {
        Names possible = names_of(algorithm_table());
        possible.insert(possible.end(), besides.begin(), besides.end());
        return no_choice(who, word, possible);
    }
    if (!has_keys) return Algorithm(*row);
    if (row->keys.empty())
        return invalid_argument("%s: %s takes no keys", asker.c_str(), row->name.data());
    Choices choices{};
    uint32_t given = 0;
    for (Parted list{{}, keys, true}; list.is_marked;) {
        list = parted_at(list.behind, ',');
        QCCL_TRY(read_key(*row, list.before, asker, choices, given));
    }
    return Algorithm(*row, choices);
}

std::string spec(const Algorithm &algorithm) {
    std::string text(algorithm.name());
    char mark = ':';
    const auto keys = algorithm.row().keys;
    for (size_t i = 0; i < keys.size(); i++) {
        const uint8_t chosen = algorithm.choices()[i];
        if (chosen == 0) continue;
        text.append(1, mark).append(keys[i].name).append("=").append(keys[i].words[chosen]);
        mark = ',';
    }
    return text;
}

} // namespace qccl
