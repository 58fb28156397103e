#include "coll/algorithm.hpp"

#include "coll/direct.hpp"
#include "coll/halving.hpp"
#include "coll/oneshot.hpp"
#include "coll/ring.hpp"

namespace qccl {

namespace {

// Of what costs the same the planner takes what stands first. Emitters in the order of Collective:
// all_reduce, reduce_scatter, all_gather, broadcast, barrier.
constexpr Algorithm table[] = {
    {.name = "direct",
     .order = by_rank,
     .emitters = {all_reduce_direct, reduce_scatter_direct, all_gather_direct, broadcast_direct,
                  nullptr},
     .rounds = rounds_direct,
     .noise = noise_direct},
    {.name = "ring",
     .order = by_ring,
     .emitters = {all_reduce_ring, reduce_scatter_ring, all_gather_ring, broadcast_ring, nullptr},
     .rounds = rounds_ring,
     .noise = noise_ring,
     .sums_on_the_way = true},
    {.name = "halving",
     .order = by_halving,
     .emitters = {all_reduce_halving, reduce_scatter_halving, all_gather_halving, nullptr, nullptr},
     .rounds = rounds_halving,
     .noise = noise_halving,
     .sums_on_the_way = true},
    {.name = "oneshot",
     .order = by_rank,
     .emitters = {all_reduce_oneshot, reduce_scatter_oneshot, all_gather_direct, broadcast_oneshot,
                  barrier_oneshot},
     .rounds = rounds_oneshot,
     .noise = noise_oneshot,
     .is_one_exchange = true,
     .own = OwnInput::as_encoded},
};

} // namespace

std::span<const Algorithm> algorithms() { return table; }

const Algorithm *find_algorithm(std::string_view name) {
    for (const Algorithm &row : table)
        if (name == row.name) return &row;
    return nullptr;
}

Result<Schedule> emit(const Algorithm &algorithm, Collective collective, const Team &team) {
    const Emit emitter = algorithm.emitter(collective);
    if (emitter && team.rank < team.size && team.root < team.size) return emitter(team);
    if (emitter)
        return Error::make(Code::invalid_argument, "rank %u or root %u is not one of %u ranks",
                           team.rank, team.root, team.size);
    return Error::make(Code::invalid_argument, "there is no %s by %s", name(collective),
                       algorithm.name);
}

} // namespace qccl
