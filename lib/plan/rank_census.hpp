// Finds out what each rank of a call does: its peers, and the program that it runs. A schedule is
// written, compared and dropped rank by rank, so that thousands of ranks fit into memory. Used by
// rank_classes alone; pure, any thread.
#pragma once

#include "base/result.hpp"
#include "plan/rank_program.hpp"

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace qccl {

// Which ranks may be simulated as one.
enum class Merging : uint8_t {
    none,      // every rank by itself
    alike,     // ranks that do the same, with any chunks and peers; times stay the same
    similar,   // also ranks whose steps differ only in chunks and slots; all chunks count as the
               // longest. Rings and hierarchies come out the same, halving up to a quarter faster
    automatic, // alike, but similar where all ranks together do more than `most_exact_steps`
};
inline constexpr double most_exact_steps = 1e7;

struct RankCensus {
    // A peer, and its number among the rank's peers.
    struct Acquaintance {
        uint32_t rank = 0, number = 0;
    };

    std::vector<RankProgram> programs;
    std::vector<uint32_t> program_of; // by rank
    std::vector<size_t> first;        // index of each rank in the two lists, and the end
    std::vector<uint32_t> in_turn;    // peers by number
    std::vector<Acquaintance> sorted; // peers by rank
    CallGeometry shape;

    uint32_t ranks() const { return static_cast<uint32_t>(program_of.size()); }
    std::span<const uint32_t> peers(uint32_t rank) const {
        return std::span(in_turn).subspan(first[rank], first[rank + 1] - first[rank]);
    }
    // Returns the number of `peer` among the peers of `rank`. There is one, because each message
    // has two ends.
    uint32_t number_at(uint32_t rank, uint32_t peer) const;
};

// Visits all ranks. Calls progress(), unless it is empty, after each of them. Returns the error of
// a schedule that cannot be written.
Result<RankCensus> take_census(const SimulatedCall &call, Merging merging,
                               const std::function<void(uint64_t done, uint64_t of)> &progress);

} // namespace qccl
