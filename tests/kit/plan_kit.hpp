// Helpers of the planner's tests: problems, inputs, and functions that plan and explain a problem.
#pragma once

#include "qtest.hpp"

#include "forms.hpp"

#include "plan/explain.hpp"

namespace qtest {

using namespace qccl;

inline constexpr size_t mebibyte = size_t{1} << 20;
inline const PlannerInputs inputs{
    .speeds = {},
    .limits = {.arena_bytes = 16 * mebibyte, .segment_bytes = 128 << 10, .max_lanes = 4}};

inline Codec codec(const char *name) {
    const auto parsed = parse_codec(name);
    CHECK_OK(parsed);
    return *parsed;
}

inline Problem all_reduce(uint64_t count, uint32_t ranks, DataType type = DataType::float32,
                          const char *with = "none") {
    return {.collective = Collective::all_reduce,
            .count = count,
            .ranks = ranks,
            .root = 0,
            .type = type,
            .codec = codec(with)};
}

inline Plan chosen(const Problem &problem, const char *named = nullptr) {
    const auto plan = choose(problem, inputs, named ? algorithm_of(named) : Algorithm());
    CHECK_OK(plan);
    return *plan;
}

inline Result<std::string> explain_in_text(const Problem &problem, const PlannerInputs &with,
                                           const Algorithm &forced = {}) {
    QCCL_TRY(const Explanation explanation, explain(problem, with, forced));
    return print_text(explanation);
}

inline std::string chosen_name(const Problem &problem) { return spec(chosen(problem).algorithm); }

} // namespace qtest
