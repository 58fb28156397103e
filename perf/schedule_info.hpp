// qccl-info schedule and verify: prints a rank's schedule and proves the schedules of all ranks.
// Used by qccl-info. Blocks while it computes.
#pragma once

#include "base/result.hpp"
#include "base/types.hpp"
#include "codec/codec.hpp"
#include "coll/algorithm.hpp"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

namespace qccl::perf {

struct ScheduleQuestion {
    Collective collective = Collective::all_reduce;
    Algorithm algorithm;
    uint32_t ranks = 0; // 0: the number of sections in the file
    uint32_t rank = 0;
    uint32_t root = 0;
    std::optional<Codec> codec;         // nothing: the schedule without a codec
    bool has_synchronous_sends = false; // verify: a send completes only when its receive is posted
    std::string file;                   // "-": standard input; empty: the algorithm's own schedules
    // Where the ranks are; null: all are on one host.
    std::shared_ptr<const RankTopology> places = nullptr;

    Team team(uint32_t of) const {
        return {.size = ranks, .rank = of, .root = root, .places = places.get()};
    }
};

// Checks that the options fit together. The functions below require this.
Done check_question(const ScheduleQuestion &question);

Done print_schedule(const ScheduleQuestion &question);
// The error names the first wrong step.
Done print_proof(const ScheduleQuestion &question);

} // namespace qccl::perf
