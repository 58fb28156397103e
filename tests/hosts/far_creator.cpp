// One rank of a job that makes communicators again and again on several hosts, until a test kills a
// rank. It then waits for what the other ranks find, and reports in a file.
//
//     far_creator REPORTS grow|nonblocking
//
// grow: the last two ranks join the communicator of the others (qcclCommGrow), every other time
// with a nonblocking config. After the error the old ranks shrink that communicator and go on.
// nonblocking: the communicator of all ranks, and then its duplicates, have a nonblocking config.
#include "tests/kit/workload.hpp"

#include <cstdlib>
#include <cstring>
#include <thread>

#include <fcntl.h>
#include <sys/mman.h>

namespace {

using namespace workload;

constexpr int new_ranks = 2;

Report *reports = nullptr; // by rank
int own = -1, size = 0;

Report &report() { return reports[own]; }

// The first error counts: what follows may come from it. `comm` is what tells of it; null: this
// thread does.
qcclResult_t keep(qcclComm_t comm, qcclResult_t result) {
    if (result != qcclSuccess && report().result == qcclSuccess) note(report(), comm, result);
    return result;
}

// Waits until the communicator is made, and returns what its creation gives.
qcclResult_t settled(qcclComm_t comm) {
    for (;;) {
        qcclResult_t found = qcclSuccess;
        if (const auto asked = qcclCommGetAsyncError(comm, &found); asked != qcclSuccess)
            return keep(nullptr, asked);
        if (found != qcclInProgress) return keep(comm, found);
        std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
}

// `begun` is what the function returned that makes `comm`.
qcclResult_t made(qcclComm_t comm, qcclResult_t begun) {
    return begun == qcclInProgress ? settled(comm) : keep(nullptr, begun);
}

qcclResult_t sum_ranks(qcclComm_t comm) {
    int rank = -1, ranks = 0;
    qcclResult_t result = qcclCommUserRank(comm, &rank);
    if (result == qcclSuccess) result = qcclCommCount(comm, &ranks);
    auto value = static_cast<float>(rank);
    if (result == qcclSuccess)
        result = qcclAllReduce(&value, &value, 1, qcclFloat32, qcclSum, comm, nullptr);
    if (result == qcclSuccess && value != static_cast<float>(ranks * (ranks - 1) / 2))
        report().wrong = 1;
    return keep(comm, result);
}

qcclResult_t use_and_end(qcclComm_t comm) {
    const qcclResult_t result = sum_ranks(comm);
    return result == qcclSuccess ? keep(nullptr, qcclCommDestroy(comm)) : result;
}

// ---- Growth

qcclResult_t grow_once(qcclComm_t all, qcclComm_t job, bool is_nonblocking) {
    qcclUniqueId id{};
    qcclResult_t result = own == 0 ? keep(nullptr, qcclGetUniqueId(&id)) : qcclSuccess;
    if (result == qcclSuccess)
        result = keep(all, qcclBroadcast(&id, &id, sizeof id, qcclUint8, 0, all, nullptr));
    if (result != qcclSuccess) return result;
    qcclConfig_t config = QCCL_CONFIG_INIT;
    config.nonblocking = is_nonblocking ? 1 : 0;
    qcclComm_t grown = nullptr;
    const int rank = job == nullptr ? own : -1;
    const qcclResult_t begun = qcclCommGrow(job, size, &id, rank, &grown, &config);
    result = made(grown, begun);
    return result == qcclSuccess ? use_and_end(grown) : result;
}

// Some ranks may be in another call already, which the revocation ends. The first shrink tells if
// that has happened.
void go_on_without_the_dead(qcclComm_t job) {
    qcclComm_t left = nullptr;
    qcclCommRevoke(job);
    qcclResult_t result = qcclCommShrink(job, nullptr, 0, &left, nullptr, QCCL_SHRINK_DEFAULT);
    if (result == qcclMismatch)
        result = qcclCommShrink(job, nullptr, 0, &left, nullptr, QCCL_SHRINK_DEFAULT);
    if (result == qcclSuccess) result = sum_ranks(left);
    if (result == qcclSuccess) return;
    report().wrong = 1;
    std::fprintf(stderr, "shrink: %s\n", qcclGetLastError(nullptr));
}

void grow_until_an_error() {
    qcclComm_t all = nullptr, job = nullptr;
    if (keep(nullptr, qcclCommInitEnv(&all, nullptr)) != qcclSuccess) return;
    const bool is_old = own < size - new_ranks;
    if (keep(all, qcclCommSplit(all, is_old ? 0 : QCCL_SPLIT_NOCOLOR, 0, &job, nullptr)) !=
        qcclSuccess)
        return;
    report().stage = calling;
    while (grow_once(all, job, report().calls % 2 != 0) == qcclSuccess)
        report().calls = report().calls + 1;
    report().ended_at = now();
    if (job != nullptr) go_on_without_the_dead(job);
}

// ---- Nonblocking

void duplicate_until_an_error() {
    qcclConfig_t config = QCCL_CONFIG_INIT;
    config.nonblocking = 1;
    qcclComm_t all = nullptr;
    const qcclResult_t begun = qcclCommInitEnv(&all, &config);
    if (made(all, begun) != qcclSuccess) return;
    report().stage = calling;
    for (;;) {
        qcclComm_t same = nullptr;
        const qcclResult_t doubled = qcclCommDup(all, &same, nullptr);
        if (made(same, doubled) != qcclSuccess || use_and_end(same) != qcclSuccess) return;
        report().calls = report().calls + 1;
    }
}

// A rank that ends would be found dead by those that still look for the first one.
void wait_for_others() {
    const double begun = now();
    int done = 0;
    while (done < size - 1 && now() - begun < 20) {
        done = 0;
        for (int rank = 0; rank < size; rank++) done += reports[rank].stage >= leaving;
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
}

bool map_reports(const char *path) {
    const int file = open(path, O_RDWR | O_CLOEXEC);
    void *const memory = mmap(nullptr, sizeof(Report) * static_cast<size_t>(size),
                              PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    reports = static_cast<Report *>(memory);
    return memory != MAP_FAILED;
}

} // namespace

int main(int argc, char **argv) {
    const char *const rank = std::getenv("RANK"), *const ranks = std::getenv("WORLD_SIZE");
    if (argc != 3 || rank == nullptr || ranks == nullptr) return 2;
    own = std::atoi(rank);
    size = std::atoi(ranks);
    if (!map_reports(argv[1])) return 2;
    if (std::strcmp(argv[2], "grow") == 0)
        grow_until_an_error();
    else
        duplicate_until_an_error();
    if (report().ended_at == 0) report().ended_at = now();
    report().stage = leaving;
    wait_for_others();
    report().stage = ended;
    return 0;
}
