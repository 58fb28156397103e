// Plays a sequence as one of its ranks, in a thread or a process of its own, and notes in shared
// memory how each call fared. Uses the public API alone; timeouts come from the environment.
#pragma once

#include "call_sequence.hpp"

#include <qccl/qccl.h>

#include <cstddef>

#include <pthread.h>

namespace sequences {

struct CallOutcome {
    qcclResult_t result;
    double seconds;
    uint64_t hash; // of the receive buffer of a call that succeeded
    bool is_wrong; // the data of an agreed call, or something behind the buffer
    char sentence[360];
};
struct RankOutcome {
    volatile size_t calls; // that have returned
    qcclResult_t created;
    char sentence[360]; // of the creation
    CallOutcome outcomes[max_calls];
};

// What the ranks of a sequence share, and the judge reads. Made anew for each sequence.
struct Stage {
    pthread_barrier_t barrier; // of as many as there are ranks
    std::byte gathered[max_ranks][4096];
    qcclComm_t comms[max_ranks]; // made by qcclCommInitAll
    RankOutcome ranks[max_ranks];
};

void prepare(Stage &stage, const Sequence &sequence);
// In a process that plays one rank.
void play_rank(const Sequence &sequence, int rank, Stage &stage);
// In a process that plays all, a thread for each.
void play_threads(const Sequence &sequence, Stage &stage);

} // namespace sequences
