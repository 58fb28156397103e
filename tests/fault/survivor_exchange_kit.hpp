// Helpers for the tests of SurvivorExchange: groups of a test's ranks, and a consensus in which
// each rank gives a bit.
#pragma once

#include "tests/transport/transport_ways.hpp"

#include "fault/survivor_exchange.hpp"

#include <cstring>

namespace qtest {

inline MemberGroup group_of(std::vector<uint32_t> members, uint64_t topic) {
    return {
        .topic = topic, .members = std::move(members), .timeout = 30s, .what = "the test's group"};
}

inline MemberGroup everyone(uint32_t size) {
    MemberGroup all = group_of({}, 0);
    for (uint32_t rank = 0; rank < size; rank++) all.members.push_back(rank);
    return all;
}

inline SurvivorExchange::Bytes word(uint32_t value) {
    const auto bytes = std::as_bytes(std::span(&value, 1));
    return {bytes.begin(), bytes.end()};
}

inline uint32_t number_in(const SurvivorExchange::Bytes &bytes) {
    uint32_t value = 0;
    std::memcpy(&value, bytes.data(), std::min(sizeof value, bytes.size()));
    return value;
}

inline Done nothing_against_it(const SurvivorExchange::Proposal &) { return {}; }

// Gives a number, and returns the sum of the numbers of all ranks that have voted. `at_decision`
// may be empty; the rank that decides calls it first.
inline Result<uint32_t> agree_on_sum(SurvivorExchange &survivors, const MemberGroup &group,
                                     uint32_t mine, const SurvivorExchange::Validator &validate,
                                     const std::function<void()> &at_decision) {
    QCCL_TRY(const SurvivorExchange::Bytes decided,
             survivors.agree(group, word(mine), validate,
                             [&](const std::vector<SurvivorExchange::Proposal> &proposals) {
                                 if (at_decision) at_decision();
                                 uint32_t sum = 0;
                                 for (const SurvivorExchange::Proposal &vote : proposals)
                                     sum += number_in(vote.payload);
                                 return word(sum);
                             }));
    return number_in(decided);
}

// Returns the bits of all ranks that have voted.
inline Result<uint32_t> roll_call(SurvivorExchange &survivors, const MemberGroup &group,
                                  uint32_t own_rank,
                                  const std::function<void()> &at_decision = {}) {
    return agree_on_sum(survivors, group, 1U << own_rank, nothing_against_it, at_decision);
}

} // namespace qtest
