// Creation of the worlds of world_stage.hpp, by an all-gather over the shared memory.
#include "world_stage.hpp"

#include "tests/transport/killable_ranks.hpp"

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <mutex>

namespace stress {

namespace {

// The context of a caller's all-gather over the memory that the ranks share.
struct Gathering {
    WorldStage &stage;
    int rank, ranks;
    std::unique_lock<std::mutex> lock{}; // locks the environment until creation has read it
};

int gather(const void *mine, void *all, size_t bytes, void *context) {
    auto &gathering = *static_cast<Gathering *>(context);
    if (gathering.lock.owns_lock()) gathering.lock.unlock();
    WorldStage &stage = gathering.stage;
    if (bytes > sizeof stage.gathered[0]) return 1;
    std::memcpy(stage.gathered[gathering.rank], mine, bytes);
    pthread_barrier_wait(&stage.barrier);
    for (int rank = 0; rank < gathering.ranks; rank++)
        std::memcpy(static_cast<char *>(all) + static_cast<size_t>(rank) * bytes,
                    stage.gathered[rank], bytes);
    pthread_barrier_wait(&stage.barrier);
    return 0;
}

// The environment says which host a rank counts as being on, and threads share the environment. A
// rank holds the lock until its creation, which reads the environment first, has reached the
// all-gather.
qcclResult_t create_by_gather(const Setting &setting, int rank, WorldStage &stage,
                              qcclComm_t *comm) {
    static std::mutex environment;
    Gathering gathering{stage, rank, setting.ranks};
    gathering.lock = std::unique_lock(environment);
    if (setting.hosts > 1)
        setenv("QCCL_HOSTID", killable::say("h%d", setting.host_of(rank)).c_str(), 1);
    else
        unsetenv("QCCL_HOSTID");
    const qcclOob_t oob{gather, &gathering};
    return qcclCommInitOob(comm, setting.ranks, rank, &oob, nullptr);
}

} // namespace

void prepare(WorldStage &stage, int ranks) {
    pthread_barrierattr_t attributes;
    pthread_barrierattr_init(&attributes);
    pthread_barrierattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    pthread_barrier_init(&stage.barrier, &attributes, static_cast<unsigned>(ranks));
    pthread_barrierattr_destroy(&attributes);
}

qcclResult_t create_all(const Setting &setting, WorldStage &stage) {
    if (setting.runner != Runner::init_all) return qcclSuccess;
    unsetenv("QCCL_HOSTID");
    return qcclCommInitAll(stage.comms, setting.ranks, nullptr);
}

qcclResult_t create_rank(const Setting &setting, int rank, WorldStage &stage, qcclComm_t *comm) {
    if (setting.runner != Runner::init_all) return create_by_gather(setting, rank, stage, comm);
    *comm = stage.comms[rank];
    return qcclSuccess;
}

double now_s() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
}

} // namespace stress
