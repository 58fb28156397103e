// Circles of a test's ranks, and an agreement in which each rank gives a bit.
#pragma once

#include "transport_ways.hpp"

#include "transport/council.hpp"

#include <cstring>

namespace qtest {

inline Circle circle_of(std::vector<uint32_t> members, uint64_t topic) {
    return {
        .topic = topic, .members = std::move(members), .timeout = 30s, .what = "the test's circle"};
}

inline Circle everyone(uint32_t size) {
    Circle all = circle_of({}, 0);
    for (uint32_t rank = 0; rank < size; rank++) all.members.push_back(rank);
    return all;
}

inline Council::Bytes word(uint32_t value) {
    const auto bytes = std::as_bytes(std::span(&value, 1));
    return {bytes.begin(), bytes.end()};
}

inline uint32_t number_in(const Council::Bytes &bytes) {
    uint32_t value = 0;
    std::memcpy(&value, bytes.data(), std::min(sizeof value, bytes.size()));
    return value;
}

inline Done nothing_against_it(const Council::Vote &) { return {}; }

// A bit for each who has voted.
inline Result<uint32_t> roll_call(Council &council, const Circle &circle, uint32_t own_rank) {
    QCCL_TRY(const Council::Bytes decided,
             council.agree(circle, word(1U << own_rank), nothing_against_it,
                           [](const std::vector<Council::Vote> &votes) {
                               uint32_t sum = 0;
                               for (const Council::Vote &vote : votes) sum += number_in(vote.said);
                               return word(sum);
                           }));
    return number_in(decided);
}

} // namespace qtest
