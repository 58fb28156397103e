// Collectives: their numbers, names and properties, and what follows from them. A number that NCCL
// has, too, is NCCL's. element_types.hpp has the types of elements and the operations. Pure; any
// thread may call.
#pragma once

#include "base/element_types.hpp"
#include "base/sizes.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string_view>

namespace qccl {

enum class Collective : int32_t {
    all_reduce = 0,
    reduce_scatter = 1,
    all_gather = 2,
    broadcast = 3,
    barrier = 4,
    reduce = 7, // 5 and 6 are below
    gather = 8,
    scatter = 9,
    all_to_all = 10,
    scan = 11,
    exscan = 12,
    send = 13, // the other end calls receive
};
// All ranks make these calls together, too, but they have no algorithm. A split has a number like a
// collective. A shrink is published only if other ranks make another call instead.
inline constexpr Collective comm_split{5}, comm_shrink{6};
// The v-forms of collectives: each part has a count of its own. They run the schedules of the
// collectives whose forms they are.
inline constexpr Collective all_gather_v{14}, reduce_scatter_v{15}, gather_v{16}, scatter_v{17},
    all_to_all_v{18};

// Whose values a rank's result covers, in the order of the ranks.
enum class Covers : uint8_t { all_ranks, up_to_own, before_own };

// Everything that is asked about a call that all ranks make together, one row a call. A field
// without a default is one that every row states.
struct CollectiveRow {
    Collective collective;
    const char *name;
    bool is_scheduled;           // algorithms have schedules for it
    bool has_values;             // it has a count, a type and buffers
    bool reduces;                // results are reductions of the values of ranks
    Covers covers;               // of reductions: of which ranks
    bool scatters;               // a rank's result is its own part of the vector
    bool gathers;                // a rank contributes its own part of the vector
    bool exchanges;              // every rank has a part of its own for every rank
    bool has_root;               // the caller names a rank
    bool has_one_source;         // only the root contributes values
    bool has_one_result;         // only the root has a result
    bool moves_on;               // only the rank after the root has a result: the root's values
    bool needs_all_ranks;        // no rank is done before every rank has begun
    std::string_view alias = {}; // a second name that texts may use
    // The collective of which this is the v-form; empty: it is no v-form.
    std::optional<Collective> v_form_of = std::nullopt;
};

inline constexpr auto collectives_without_v_forms = std::to_array<CollectiveRow>({
    {.collective = Collective::all_reduce,
     .name = "all_reduce",
     .is_scheduled = true,
     .has_values = true,
     .reduces = true,
     .covers = Covers::all_ranks,
     .scatters = false,
     .gathers = false,
     .exchanges = false,
     .has_root = false,
     .has_one_source = false,
     .has_one_result = false,
     .moves_on = false,
     .needs_all_ranks = true,
     .alias = "allreduce"},
    {.collective = Collective::reduce_scatter,
     .name = "reduce_scatter",
     .is_scheduled = true,
     .has_values = true,
     .reduces = true,
     .covers = Covers::all_ranks,
     .scatters = true,
     .gathers = false,
     .exchanges = false,
     .has_root = false,
     .has_one_source = false,
     .has_one_result = false,
     .moves_on = false,
     .needs_all_ranks = true},
    {.collective = Collective::all_gather,
     .name = "all_gather",
     .is_scheduled = true,
     .has_values = true,
     .reduces = false,
     .covers = Covers::all_ranks,
     .scatters = false,
     .gathers = true,
     .exchanges = false,
     .has_root = false,
     .has_one_source = false,
     .has_one_result = false,
     .moves_on = false,
     .needs_all_ranks = true},
    {.collective = Collective::broadcast,
     .name = "broadcast",
     .is_scheduled = true,
     .has_values = true,
     .reduces = false,
     .covers = Covers::all_ranks,
     .scatters = false,
     .gathers = false,
     .exchanges = false,
     .has_root = true,
     .has_one_source = true,
     .has_one_result = false,
     .moves_on = false,
     .needs_all_ranks = false},
    {.collective = Collective::barrier,
     .name = "barrier",
     .is_scheduled = true,
     .has_values = false,
     .reduces = false,
     .covers = Covers::all_ranks,
     .scatters = false,
     .gathers = false,
     .exchanges = false,
     .has_root = false,
     .has_one_source = false,
     .has_one_result = false,
     .moves_on = false,
     .needs_all_ranks = true},
    {.collective = comm_split,
     .name = "comm_split",
     .is_scheduled = false,
     .has_values = false,
     .reduces = false,
     .covers = Covers::all_ranks,
     .scatters = false,
     .gathers = false,
     .exchanges = false,
     .has_root = false,
     .has_one_source = false,
     .has_one_result = false,
     .moves_on = false,
     .needs_all_ranks = true},
    {.collective = comm_shrink,
     .name = "comm_shrink",
     .is_scheduled = false,
     .has_values = false,
     .reduces = false,
     .covers = Covers::all_ranks,
     .scatters = false,
     .gathers = false,
     .exchanges = false,
     .has_root = false,
     .has_one_source = false,
     .has_one_result = false,
     .moves_on = false,
     .needs_all_ranks = true},
    {.collective = Collective::reduce,
     .name = "reduce",
     .is_scheduled = true,
     .has_values = true,
     .reduces = true,
     .covers = Covers::all_ranks,
     .scatters = false,
     .gathers = false,
     .exchanges = false,
     .has_root = true,
     .has_one_source = false,
     .has_one_result = true,
     .moves_on = false,
     .needs_all_ranks = false},
    {.collective = Collective::gather,
     .name = "gather",
     .is_scheduled = true,
     .has_values = true,
     .reduces = false,
     .covers = Covers::all_ranks,
     .scatters = false,
     .gathers = true,
     .exchanges = false,
     .has_root = true,
     .has_one_source = false,
     .has_one_result = true,
     .moves_on = false,
     .needs_all_ranks = false},
    {.collective = Collective::scatter,
     .name = "scatter",
     .is_scheduled = true,
     .has_values = true,
     .reduces = false,
     .covers = Covers::all_ranks,
     .scatters = true,
     .gathers = false,
     .exchanges = false,
     .has_root = true,
     .has_one_source = true,
     .has_one_result = false,
     .moves_on = false,
     .needs_all_ranks = false},
    {.collective = Collective::all_to_all,
     .name = "all_to_all",
     .is_scheduled = true,
     .has_values = true,
     .reduces = false,
     .covers = Covers::all_ranks,
     .scatters = false,
     .gathers = false,
     .exchanges = true,
     .has_root = false,
     .has_one_source = false,
     .has_one_result = false,
     .moves_on = false,
     .needs_all_ranks = true,
     .alias = "alltoall"},
    {.collective = Collective::scan,
     .name = "scan",
     .is_scheduled = true,
     .has_values = true,
     .reduces = true,
     .covers = Covers::up_to_own,
     .scatters = false,
     .gathers = false,
     .exchanges = false,
     .has_root = false,
     .has_one_source = false,
     .has_one_result = false,
     .moves_on = false,
     .needs_all_ranks = false},
    {.collective = Collective::exscan,
     .name = "exscan",
     .is_scheduled = true,
     .has_values = true,
     .reduces = true,
     .covers = Covers::before_own,
     .scatters = false,
     .gathers = false,
     .exchanges = false,
     .has_root = false,
     .has_one_source = false,
     .has_one_result = false,
     .moves_on = false,
     .needs_all_ranks = false},
    {.collective = Collective::send,
     .name = "send",
     .is_scheduled = true,
     .has_values = true,
     .reduces = false,
     .covers = Covers::all_ranks,
     .scatters = false,
     .gathers = false,
     .exchanges = false,
     .has_root = true,
     .has_one_source = true,
     .has_one_result = false,
     .moves_on = true,
     .needs_all_ranks = false},
});

// The row of a v-form is that of the collective, but for what is stated here.
struct VForm {
    Collective collective;
    const char *name;
    Collective of;
};
inline constexpr auto v_forms =
    std::to_array<VForm>({{all_gather_v, "all_gather_v", Collective::all_gather},
                          {reduce_scatter_v, "reduce_scatter_v", Collective::reduce_scatter},
                          {gather_v, "gather_v", Collective::gather},
                          {scatter_v, "scatter_v", Collective::scatter},
                          {all_to_all_v, "all_to_all_v", Collective::all_to_all}});

// In the order of the numbers: the number is the index.
inline constexpr auto collective_table = [] {
    std::array<CollectiveRow, collectives_without_v_forms.size() + v_forms.size()> table{};
    auto *next = std::ranges::copy(collectives_without_v_forms, table.begin()).out;
    for (const VForm &form : v_forms) {
        *next = collectives_without_v_forms.at(static_cast<size_t>(form.of));
        next->collective = form.collective;
        next->name = form.name;
        next->is_scheduled = false;
        next->alias = {};
        next->v_form_of = form.of;
        next++;
    }
    return table;
}();
static_assert(is_in_order(collective_table, &CollectiveRow::collective));

constexpr const CollectiveRow &row_of(Collective collective) {
    return collective_table[static_cast<size_t>(collective)];
}

// Whether every rank knows the counts of all parts of the v-form. Of the others a rank knows those
// of the parts that it sends or receives.
constexpr bool are_counts_common(Collective v_form) {
    return !row_of(v_form).exchanges && !row_of(v_form).has_root;
}

// Of a v-form whose counts are not common, choices of codec and algorithm go by this count of each
// part.
inline constexpr uint64_t unknown_part_count = uint64_t{1} << 20;
inline std::optional<Collective> parse_v_form(std::string_view name) {
    for (const VForm &form : v_forms)
        if (name == form.name) return form.collective;
    return std::nullopt;
}

// Returns the collectives of which `is_one` is true, in the order of their numbers.
template <auto is_one> constexpr auto collectives_with() {
    std::array<Collective, std::ranges::count_if(collective_table, is_one)> found{};
    size_t next = 0;
    for (const CollectiveRow &row : collective_table)
        if (is_one(row)) found.at(next++) = row.collective;
    return found;
}
// nvcc takes no closures as template arguments.
constexpr bool has_schedule(const CollectiveRow &row) { return row.is_scheduled; }
constexpr bool moves_values(const CollectiveRow &row) { return row.is_scheduled && row.has_values; }
inline constexpr auto scheduled_collectives = collectives_with<has_schedule>();
inline constexpr auto value_collectives = collectives_with<moves_values>();
template <size_t number>
constexpr auto names_of(const std::array<Collective, number> &collectives) {
    std::array<const char *, number> names{};
    for (size_t i = 0; i < number; i++) names.at(i) = row_of(collectives.at(i)).name;
    return names;
}
inline constexpr auto collective_names = names_of(scheduled_collectives);
inline constexpr auto value_collective_names = names_of(value_collectives);

constexpr const char *name(Collective call) { return row_of(call).name; }

// ---- Names in texts

inline std::optional<Collective> parse_collective(std::string_view name) {
    if (name.empty()) return std::nullopt; // not an empty alias
    for (const CollectiveRow &row : collective_table)
        if (row.is_scheduled && (name == row.name || name == row.alias)) return row.collective;
    return std::nullopt;
}

constexpr bool reduces(Collective collective) { return row_of(collective).reduces; }
// Whether results are reductions of the ranks up to each rank.
constexpr bool is_prefix(Collective collective) {
    return row_of(collective).covers != Covers::all_ranks;
}
// Returns the number of ranks whose values the rank's result covers.
constexpr uint32_t covered_ranks(Collective collective, uint32_t rank, uint32_t ranks) {
    const Covers covers = row_of(collective).covers;
    return covers == Covers::all_ranks ? ranks : covers == Covers::up_to_own ? rank + 1 : rank;
}
// Whether every rank receives something, and so hears of what the others have found.
constexpr bool do_all_receive(Collective collective) {
    const CollectiveRow &row = row_of(collective);
    return !row.has_one_result && !row.moves_on && !is_prefix(collective);
}
// Whether all ranks have the same result.
constexpr bool is_same_everywhere(Collective collective) {
    const CollectiveRow &row = row_of(collective);
    return do_all_receive(collective) && !row.scatters && !row.exchanges;
}
// Whether all ranks get values that single ranks, their owners, have from the start.
constexpr bool has_owners(Collective collective) {
    return moves_values(row_of(collective)) && is_same_everywhere(collective) &&
           !reduces(collective);
}
// What an owner has in its own result, if its values are encoded.
enum class OwnerKeeps : uint8_t {
    decoded, // what the other ranks decode, so that all ranks have the same bytes
    exact,   // its values as they are
};
// Whether calls may name the operation. An average of fewer ranks than all has no number that all
// ranks divide by. Where nothing is reduced, `op` is sum.
constexpr bool takes_op(Collective collective, RedOp op) {
    return reduces(collective) ? op != RedOp::avg || !is_prefix(collective) : op == RedOp::sum;
}
// Whether the vector consists of equal parts, one for each rank, and `count` is the count of a
// part. A rank whose buffer does not hold the vector holds its own part, or nothing.
constexpr bool has_part_per_rank(Collective collective) {
    const CollectiveRow &row = row_of(collective);
    return row.scatters || row.gathers || row.exchanges;
}
constexpr uint32_t parts_of(Collective collective, uint32_t ranks) {
    return has_part_per_rank(collective) ? ranks : 1;
}
// Returns the count of the whole vector for a call with `count`.
constexpr uint64_t vector_count(Collective collective, uint64_t count, uint32_t ranks) {
    return count * parts_of(collective, ranks);
}

} // namespace qccl
