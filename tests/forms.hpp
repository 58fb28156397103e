// The forms that a schedule takes on its way to the engine, as tests want them.
#pragma once

#include "qtest.hpp"

#include "coll/algorithm.hpp"
#include "schedule/place_codec.hpp"
#include "schedule/shape.hpp"

#include <array>

namespace qccl {

enum class Form : uint8_t { author, placed, joined };
inline constexpr std::array<Form, 3> forms{Form::author, Form::placed, Form::joined};
inline constexpr std::array<Collective, 4> moving_collectives{
    Collective::all_reduce, Collective::reduce_scatter, Collective::all_gather,
    Collective::broadcast};

inline std::vector<Collective> collectives_of(const Algorithm &algorithm) {
    std::vector<Collective> found;
    for (const Collective collective : moving_collectives)
        if (algorithm.has(collective)) found.push_back(collective);
    return found;
}

inline Algorithm algorithm_of(std::string_view spec) {
    const auto found = parse_algorithm(spec);
    CHECK_OK(found);
    return *found;
}

inline Schedule make(Form form, const Algorithm &algorithm, Collective collective,
                     const Team &team) {
    auto author = emit(algorithm, collective, team);
    CHECK_OK(author);
    if (form == Form::author) return *author;
    auto placed = place_codec(*author);
    CHECK_OK(placed);
    return form == Form::placed ? *placed : fuse(*placed).schedule;
}

inline std::vector<Schedule> make_all(Form form, const Algorithm &algorithm, Collective collective,
                                      uint32_t ranks, uint32_t root = 0,
                                      const Places *places = nullptr) {
    std::vector<Schedule> schedules;
    for (uint32_t rank = 0; rank < ranks; rank++)
        schedules.push_back(make(form, algorithm, collective,
                                 {.size = ranks, .rank = rank, .root = root, .places = places}));
    return schedules;
}

// By rank, the host that it is on.
inline Places places_on(const std::vector<uint32_t> &hosts) {
    std::vector<Whereabouts> spots;
    for (const uint32_t host : hosts) spots.push_back({.node = 0, .host = host, .rack = 0});
    return Places(std::move(spots));
}

} // namespace qccl
