// Makes the first communicator of random calls, and the memory in which its ranks meet. Used by the
// programs that play ranks.
#pragma once

#include "world_setting.hpp"

#include <qccl/qccl.h>

#include <cstddef>

#include <pthread.h>

namespace stress {

// Memory that the ranks share.
struct WorldStage {
    pthread_barrier_t barrier; // of all ranks
    std::byte gathered[max_ranks][4096];
    qcclComm_t comms[max_ranks]; // if created by qcclCommInitAll
};
// Initializes zeroed shared memory for so many ranks.
void prepare(WorldStage &stage, int ranks);
// Makes all ranks in the calling process. Does nothing for other runners.
qcclResult_t create_all(const Setting &setting, WorldStage &stage);
// Makes one rank; all ranks of the world call it. Blocks until all ranks have.
qcclResult_t create_rank(const Setting &setting, int rank, WorldStage &stage, qcclComm_t *comm);

double now_s();

} // namespace stress
