// What qccl-info says about schedules and plans: prints them, proves them, explains the choice.
// Pure but for the files and the output.
#pragma once

#include "base/result.hpp"
#include "base/types.hpp"

#include <cstdint>
#include <string>

namespace qccl::perf {

struct ScheduleQuestion {
    Collective collective = Collective::all_reduce;
    std::string algorithm; // empty: the planner's choice (explain only)
    uint32_t ranks = 0;    // 0: as many as the file has sections
    uint32_t rank = 0;
    uint32_t root = 0;
    std::string codec; // empty: the author's schedule, no codec placed
    std::string file;  // "-": standard input; empty: the algorithm's own schedules
    uint64_t bytes = 0;
    std::string type = "float";
    std::string op = "sum";
};

Done print_explanation(const ScheduleQuestion &question);
Done print_schedule(const ScheduleQuestion &question);
// An error names the first wrong step.
Done print_proof(const ScheduleQuestion &question);

} // namespace qccl::perf
