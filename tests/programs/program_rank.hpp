// Plays random programs as one of their ranks, in its own thread or process, through the public API
// alone; timeouts come from the environment. The programs of one setting follow one another in one
// world. Blocks until they are done.
#pragma once

#include "rank_report.hpp"
#include "tests/stress/world_stage.hpp"

namespace stress {

inline constexpr long max_batch = 64;

// The programs that are played in one world.
struct Batch {
    uint64_t seed;    // of the run
    long first, size; // numbers of programs
    Setting setting;
    Rule rule; // that the programs break
    Program program(long number) const {
        return make_program(seed * 1'000'003 + static_cast<uint64_t>(number), setting, rule);
    }
};

// Memory that the ranks of a batch and the parent, which judges them, share. It is zeroed for each
// batch.
struct BatchStage {
    WorldStage world;
    RankReport ranks[max_ranks];
    // By rank, program and communicator: follows from what all its ranks receive alike.
    uint64_t equal[max_ranks][max_batch][max_comms];
};
void prepare(BatchStage &stage, const Batch &batch);
// Plays one rank in the calling thread. A rank that meets an error in programs that break no rule
// aborts its communicators.
void play_rank(const Batch &batch, int rank, BatchStage &stage);
// Plays all ranks in the calling process, with a thread for each.
void play_threads(const Batch &batch, BatchStage &stage);

} // namespace stress
