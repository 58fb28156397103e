// What qccl-info says about schedules: prints and proves them.
// Pure but for the files and the output.
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
    uint32_t ranks = 0; // 0: as many as the file has sections
    uint32_t rank = 0;
    uint32_t root = 0;
    std::optional<Codec> codec;         // nothing: the author's schedule, no codec placed
    bool has_synchronous_sends = false; // verify: a send is done when its receive is posted
    std::string file;                   // "-": standard input; empty: the algorithm's own schedules
    // Where the ranks are; null: on one host.
    std::shared_ptr<const Places> places = nullptr;

    Team team(uint32_t of) const {
        return {.size = ranks, .rank = of, .root = root, .places = places.get()};
    }
};

// Whether its parts go together, which each of the answers takes for granted.
Done check_question(const ScheduleQuestion &question);

Done print_schedule(const ScheduleQuestion &question);
// An error names the first wrong step.
Done print_proof(const ScheduleQuestion &question);

} // namespace qccl::perf
