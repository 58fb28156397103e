// Plays a sequence of calls as one of its ranks, in its own thread or process, and notes the
// outcome of each call in shared memory. It uses only the public API; timeouts come from the
// environment.
#pragma once

#include "call_sequence.hpp"
#include "world_stage.hpp"

namespace stress {

struct CallOutcome {
    qcclResult_t result;
    double seconds;
    uint64_t hash; // of the receive buffer, if the call succeeded
    bool is_wrong; // wrong data of an agreed call, or a write past the buffer
    char sentence[360];
};
struct RankOutcome {
    volatile size_t calls; // that have returned
    qcclResult_t created;
    char sentence[360]; // of the creation
    CallOutcome outcomes[max_calls];
};

// Memory that the ranks of a sequence and the parent, which judges the outcomes, share. It is made
// anew for each sequence.
struct SequenceStage {
    WorldStage world;
    RankOutcome ranks[max_ranks];
};

// Initializes the shared memory for a sequence.
void prepare(SequenceStage &stage, const Sequence &sequence);
// Plays one rank in the calling process.
void play_rank(const Sequence &sequence, int rank, SequenceStage &stage);
// Plays all ranks in the calling process, with a thread for each.
void play_threads(const Sequence &sequence, SequenceStage &stage);

} // namespace stress
