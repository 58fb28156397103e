// Schedules for tests, in each form that a schedule takes on its way to the engine: as the
// algorithm emits it, with the codec placed, and with steps joined.
#pragma once

#include "qtest.hpp"

#include "coll/algorithm.hpp"
#include "schedule/lower.hpp"
#include "schedule/shape.hpp"

#include <array>
#include <cmath>

namespace qccl {

enum class ScheduleForm : uint8_t { author, placed, joined };
inline constexpr std::array<ScheduleForm, 3> forms{ScheduleForm::author, ScheduleForm::placed,
                                                   ScheduleForm::joined};

inline std::vector<Collective> collectives_of(const Algorithm &algorithm) {
    std::vector<Collective> found;
    for (const Collective collective : value_collectives)
        if (algorithm.has(collective)) found.push_back(collective);
    return found;
}

inline bool is_close(const NoiseMoments &a, const NoiseMoments &b) {
    const auto are_close = [](double x, double y) { return std::abs(x - y) < 1e-9 * (1 + y); };
    return are_close(a.first, b.first) && are_close(a.second, b.second) &&
           are_close(a.third, b.third);
}

inline Algorithm algorithm_of(std::string_view spec) {
    const auto found = parse_algorithm(spec);
    CHECK_OK(found);
    return *found;
}

// The collectives of which owners may keep their values exact.
inline std::vector<Collective> owned_collectives_of(const Algorithm &algorithm) {
    std::vector<Collective> found = collectives_of(algorithm);
    std::erase_if(found, [](Collective collective) { return !has_owners(collective); });
    return found;
}

inline Schedule make(ScheduleForm form, const Algorithm &algorithm, Collective collective,
                     const Team &team, OwnerKeeps owner = OwnerKeeps::decoded) {
    auto author = emit(algorithm, collective, team);
    CHECK_OK(author);
    if (form == ScheduleForm::author) return *author;
    auto placed = place_codec(*author, owner);
    CHECK_OK(placed);
    return form == ScheduleForm::placed ? *placed : fuse(*placed).schedule;
}

inline std::vector<Schedule> make_all(ScheduleForm form, const Algorithm &algorithm,
                                      Collective collective, uint32_t ranks, uint32_t root = 0,
                                      const RankTopology *places = nullptr,
                                      OwnerKeeps owner = OwnerKeeps::decoded) {
    std::vector<Schedule> schedules;
    for (uint32_t rank = 0; rank < ranks; rank++)
        schedules.push_back(make(form, algorithm, collective,
                                 {.size = ranks, .rank = rank, .root = root, .places = places},
                                 owner));
    return schedules;
}

// Puts each rank on the host that `hosts` gives for it.
inline RankTopology places_on(const std::vector<uint32_t> &hosts) {
    std::vector<RankLocation> spots;
    for (const uint32_t host : hosts) spots.push_back({.node = 0, .host = host, .rack = 0});
    return RankTopology(std::move(spots));
}

} // namespace qccl
